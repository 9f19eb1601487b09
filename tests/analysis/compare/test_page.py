"""The page: one file, with the words and pictures of the comparison."""

from __future__ import annotations

from hooktrace.analysis.compare.page import page
from tests.analysis.report.test_command import Page

from .jobs import compared


def test_a_page_says_and_shows_it() -> None:
    """Sentence, doubts, three pictures, three tables."""
    found = compared(bytes_per_second=2.5e8)
    made = Page(page([found]))
    assert found.sentence in made.text
    assert found.doubts[0] in made.text
    assert made.tags.count("svg") == made.tags.count("table") == 3
    assert made.tags.count("h2") == 0


def test_many_begin_with_links_to_each() -> None:
    """All against the first."""
    made = Page(page([compared(), compared(bytes_per_second=2.5e8)]))
    links = [value for name, value in made.attributes if name == "href"]
    assert links == ["#c1", "#c2"]
    assert [value for name, value in made.attributes if name == "id"] == ["c1", "c2"]


def test_what_is_unknown_is_not_drawn() -> None:
    """Few steps have no interval; bars of buckets are there."""
    made = Page(page([compared(steps=12)]))
    assert "too few to tell how they vary" in made.text
