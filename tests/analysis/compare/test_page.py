"""The page: one file, with the words and pictures of the comparison."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

from rich.console import Console

from hooktrace.analysis.compare import compare_runs
from hooktrace.analysis.compare.page import page
from hooktrace.analysis.compare.terminal import print_comparisons
from tests.analysis.report.sharded_jobs import ShardedJob, units
from tests.analysis.report.test_command import Page

from .jobs import compared, measured


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


def test_a_page_of_units_speaks_of_no_bucket(tmp_path: Path) -> None:
    """In words, pictures and tables; the terminal neither."""
    job = ShardedJob(steps=60, units=units(3))
    a, b = (
        measured(dataclasses.replace(job, latency_ms=ms), tmp_path / name, name)
        for name, ms in (("a", 0.2), ("b", 1.0))
    )
    found_units = compare_runs([a], [b])
    html = re.sub(r"<style>.*?</style>", "", page([found_units]), flags=re.DOTALL)
    out = io.StringIO()
    print_comparisons(Console(file=out, width=200), [found_units])
    for text in (html, out.getvalue()):
        assert "bucket" not in text
        assert "blocks.0 reduce-scatter (backward)" in text
