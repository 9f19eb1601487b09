"""What stands in the terminal: what was measured first, what is not modelled last."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

from rich.console import Console

from hooktrace.analysis.whatif.advise import advise
from hooktrace.analysis.whatif.answer import LIMITS
from hooktrace.analysis.whatif.terminal import print_advised, print_answer

from .answers import answer, predicted

DOUBT = "Its latency is that of clock pings, as all buckets are of one size."


def printed(show: Callable[[Console], None]) -> list[str]:
    """Return the lines of a terminal of 110 columns."""
    out = StringIO()
    show(Console(file=out, width=110, highlight=False, markup=False))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_predictions_are_a_table_below_what_is() -> None:
    """Each with its interval, and how it differs from what is; doubts once, limits last."""
    one = answer(
        predicted(210.0, "fp16", 5.0, error=3e-4, doubts=(DOUBT,)),
        predicted(110.0, "powersgd-rank4", error=None, doubts=(DOUBT,)),
    )
    lines = printed(lambda console: print_answer(console, one))
    assert lines[0].startswith("Measured: net, allreduce, buckets of 25 MB")
    assert lines[-1] == LIMITS
    text = "\n".join(lines)
    assert text.count("Its latency is that") == 1
    rows = [" ".join(line.split()) for line in lines]
    assert "allreduce, as it is 25 400 380 to 420 350 16.80 0" in rows
    assert "fp16 5 210 200 to 220 \N{MINUS SIGN}47.5 % 160 16.80 0.0003 lossy" in rows
    assert any(row.startswith("powersgd-rank4 25 110") and "unknown" in row for row in rows)
    assert text.lower().count("measured") == 1


def test_advice_has_its_code_below() -> None:
    """Ranked; nothing of it is called measured."""
    found = advise(
        answer(predicted(210.0, "fp16", error=3e-4), predicted(110.0, "powersgd-rank4", error=0.6))
    )
    lines = printed(lambda c: print_advised(c, found, lambda _, choice: f"use {choice.hook}"))
    assert [line.strip() for line in lines if "use " in line] == ["use powersgd-rank4", "use fp16"]
    assert "\n".join(lines).lower().count("measured") == 1
    assert lines[-1] == LIMITS
