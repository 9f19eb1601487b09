"""What a terminal shows: the sentence first, then what is doubtful, then tables."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from hooktrace.analysis.compare import Comparison, compare_runs
from hooktrace.analysis.compare.terminal import print_comparisons

from .jobs import compared, measures


def printed(*found: Comparison) -> str:
    console = Console(file=StringIO(), width=110, highlight=False)
    print_comparisons(console, found)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_sentence_is_first() -> None:
    """Then doubts; then medians, parts and buckets with their intervals."""
    found = compared(bytes_per_second=2.5e8)
    text = printed(found)
    assert " ".join(text.split()).startswith(found.sentence)
    marks = [
        text.index(x) for x in ("One run a side", "Medians of a step", "What acc", "What each b")
    ]
    assert marks == sorted(marks)
    assert "step time, ms" in text
    assert "+4.0" in text.splitlines()[-2]
    assert text.splitlines()[-2].rstrip().endswith("transfer")


def test_many_runs_begin_with_a_sentence_each() -> None:
    """All against the first."""
    a, b = compared(), compared(bytes_per_second=2.5e8)
    lines = printed(a, b).splitlines()
    assert sum("Between these two runs" in line for line in lines) == 4


def test_buckets_that_do_not_differ_are_left_out() -> None:
    """Their rows would be of zeros; where no bucket differs there is no table."""
    base = measures("base")
    same = compare_runs([base], [base])
    assert {pair.stage for pair in same.buckets} == {None}, "most of nothing is no stage"
    assert "What each bucket" not in printed(same)
    *_, caption = printed(compared(bytes_per_second=2.5e8)).splitlines()
    assert caption.rstrip() == "5 that do not differ are left out"
