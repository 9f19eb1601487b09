"""The page: one file, with the words and pictures of the comparison."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from hooktrace.analysis.compare import compare_runs, measure
from hooktrace.analysis.compare.page import page
from hooktrace.analysis.compare.terminal import print_comparisons
from tests.analysis.report.sharded_jobs import ShardedJob, units
from tests.analysis.report.test_command import Page
from tests.analysis.runs import timeline_of

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


def test_a_page_of_units_speaks_of_no_bucket(tmp_path: Path) -> None:
    """In words, pictures and tables; the terminal neither."""
    sides = []
    for name, job in (
        ("a", ShardedJob(steps=60, units=units(3))),
        ("b", ShardedJob(steps=60, units=units(3), latency_ms=1.0)),
    ):
        found = measure(timeline_of(job, tmp_path / name), "net", name)
        assert found is not None
        sides.append(found)
    found_units = compare_runs([sides[0]], [sides[1]])
    html = re.sub(r"<style>.*?</style>", "", page([found_units]), flags=re.DOTALL)
    out = io.StringIO()
    print_comparisons(Console(file=out, width=200), [found_units])
    for text in (html, out.getvalue()):
        assert "bucket" not in text
        assert "blocks.0 reduce-scatter (backward)" in text
