"""A comparison in a terminal and on a page: sentence, doubts, tables; the page has pictures."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from hooktrace.analysis.compare import compare_runs
from tests.analysis.report.sharded_jobs import ShardedJob, units
from tests.analysis.report.test_command import Page
from tests.analysis.shown import page_of, printed

from .jobs import compared, measured, measures


def test_a_page_says_and_shows_it() -> None:
    """Sentence, doubts, three pictures, three tables."""
    found = compared(bytes_per_second=2.5e8)
    made = Page(page_of([found]))
    assert found.sentence in made.text
    assert found.doubts[0] in made.text
    assert (made.tags.count("svg"), made.tags.count("table"), made.tags.count("details")) == (
        3,
        4,
        1,
    )
    assert made.tags.count("h2") == 0


def test_many_begin_with_a_sentence_each() -> None:
    """All against the first; then each has its heading."""
    found = [compared(), compared(bytes_per_second=2.5e8)]
    made = Page(page_of(found))
    assert made.tags.count("h2") == 2
    before = made.text[: made.text.index("What is compared")]
    assert all(one.sentence in before for one in found)


def test_what_is_unknown_is_not_drawn() -> None:
    """Few steps have no interval; bars of buckets are there."""
    made = Page(page_of([compared(steps=12)]))
    assert "too few to tell how they vary" in made.text


def test_a_page_of_units_speaks_of_no_bucket(tmp_path: Path) -> None:
    """In words, pictures and tables; the terminal neither."""
    job = ShardedJob(steps=60, units=units(3))
    a, b = (
        measured(dataclasses.replace(job, latency_ms=ms), tmp_path / name, name)
        for name, ms in (("a", 0.2), ("b", 1.0))
    )
    found_units = compare_runs([a], [b])
    html = re.sub(r"<style>.*?</style>", "", page_of([found_units]), flags=re.DOTALL)
    for text in (html, printed([found_units])):
        assert "bucket" not in text
        assert "blocks.0 reduce-scatter (backward)" in text


def test_the_sentence_is_first() -> None:
    """Then doubts; then medians, parts and buckets with their intervals."""
    found = compared(bytes_per_second=2.5e8)
    text = printed([found], 110)
    assert " ".join(text.split()).startswith(found.sentence)
    marks = [
        text.index(x) for x in ("One run a side", "Medians of a step", "What acc", "What each b")
    ]
    assert marks == sorted(marks)
    assert "step time, ms" in text
    *_, last = (line for line in text.splitlines() if line.rstrip().endswith("transfer"))
    assert "+4.0" in last


def test_many_runs_begin_with_a_sentence_each() -> None:
    """All against the first."""
    a, b = compared(), compared(bytes_per_second=2.5e8)
    lines = printed([a, b], 110).splitlines()
    assert sum("Between these two runs" in line for line in lines) == 4


def test_buckets_that_do_not_differ_are_left_out() -> None:
    """Their rows would be of zeros; where no bucket differs there is no table."""
    base = measures("base")
    same = compare_runs([base], [base])
    assert {pair.stage for pair in same.buckets} == {None}, "most of nothing is no stage"
    assert "What each bucket" not in printed([same])
    said = " ".join(printed([compared(bytes_per_second=2.5e8)], 110).split())
    assert said.endswith("; 5 more that do not differ are left out")
