"""What a terminal shows: the sentence first, then what is doubtful, then tables."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from hooktrace.analysis.compare import Comparison
from hooktrace.analysis.compare.terminal import print_comparisons

from .jobs import compared


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
    assert "+4.0" in text.splitlines()[-1]
    assert text.rstrip().endswith("transfer")


def test_many_runs_begin_with_a_sentence_each() -> None:
    """All against the first."""
    a, b = compared(), compared(bytes_per_second=2.5e8)
    lines = printed(a, b).splitlines()
    assert sum("Between these two runs" in line for line in lines) == 4
