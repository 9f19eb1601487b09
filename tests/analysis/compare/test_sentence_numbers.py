"""Differences as text."""

from __future__ import annotations

from hooktrace.analysis.compare.comparison import Difference
from hooktrace.analysis.compare.sentence import (
    MINUS,
    share,
    sign,
    signed,
    signed_ms,
    value,
    within,
)

FOUND = Difference(
    a=2e8, b=1.8e8, difference=-2e7, low=-3e7, high=-1e7, share=-0.1, verdict="differs"
)


def test_values_have_no_unit() -> None:
    """The table's head has it."""
    assert [value(4e6, "ns"), value(4e6, "bytes")] == ["4.00", "4.00"]
    assert [value(0.5, "share"), value(0.00031234, "error")] == ["50 %", "0.000312"]
    assert value(None, "ns") == "unknown"


def test_differences_have_a_sign() -> None:
    """A minus as wide as the plus; none of 0, and a dash for what nobody knows."""
    assert [signed(-2e6, "ns"), signed(2e6, "ns"), signed(0, "ns")] == [
        f"{MINUS}2.00",
        "+2.00",
        "0.00",
    ]
    assert signed(None, "ns") == "-"
    assert [sign(-1), sign(1), sign(0)] == [MINUS, "+", ""]
    assert [signed_ms(1e6), signed_ms(None)] == ["+1.00 ms", "unknown"]


def test_intervals() -> None:
    """Of a constant there is none to give."""
    assert within(FOUND, "ns") == f"{MINUS}30.0 to {MINUS}10.0"
    exact = Difference(a=1, b=2, difference=1, low=1, high=1, verdict="differs")
    unknown = Difference(a=1, b=None, verdict="unknown", why="because")
    assert [within(exact, "bytes"), within(unknown, "ns")] == ["exact", "-"]
    assert [share(FOUND, "ns"), share(FOUND, "share"), share(unknown, "ns")] == [
        f"{MINUS}10 %",
        "-",
        "-",
    ]
