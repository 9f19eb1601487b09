"""The sentence says only what is shown to differ; numbers have their sign and unit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare.comparison import Comparison, Difference, Quantity
from hooktrace.analysis.compare.sentence import (
    MINUS,
    sentence,
    share,
    sign,
    signed,
    signed_ms,
    value,
    within,
)

from .jobs import compared

FOUND = compared(bytes_per_second=2.5e8)


def changed(step: Difference) -> Comparison:
    """Return a comparison with another difference of the step time."""
    first, *others = FOUND.quantities
    return replace(FOUND, quantities=(replace(first, difference=step), *others))


def test_not_shown_is_said_with_both_and_the_interval() -> None:
    """And what else is shown to differ."""
    found = Difference(a=1e8, b=1.01e8, difference=1e6, low=-1e6, high=3e6, verdict="not shown")
    text = sentence(changed(found))
    assert text.startswith(
        "Between these two runs, the step time is not shown to differ: 101 ms with other, 100 ms "
        "with base (\N{MINUS SIGN}1.00 to +3.00 ms). Shown to differ: exposed communication, +"
    )
    drifts = replace(found, low=0.1, why="the halves of one run differ by more than the runs do")
    assert "and the halves of one run differ by more" in sentence(changed(drifts))
    same = Difference(a=1e8, b=1e8, difference=0, low=0, high=0, verdict="same")
    assert "the step time is the same, 100 ms" in sentence(changed(same))


def test_unknown_is_said_with_its_reason() -> None:
    """Not as if nothing differed."""
    found = Difference(a=1e8, b=1.5e8, verdict="unknown", why="12 steps are too few")
    assert sentence(changed(found)) == (
        "Whether other is faster than base is unknown, because 12 steps are too few: 150 ms a step "
        "against 100 ms."
    )
    none = Difference(a=None, b=1e8, verdict="unknown", why="one of the runs has no such number")
    assert "because no step time of one is known" in sentence(changed(none))


@pytest.mark.parametrize("a", [0.0, None])
def test_what_gradients_lose_is_in_the_headline(a: float | None) -> None:
    """Also where few steps were probed, and where one run has none; not where it is rounding."""
    lost = Difference(a=a, b=0.33, verdict="unknown", why="two are too few")
    error = Quantity(key="error", title="relative error", unit="error", difference=lost)
    one = "0" if a is not None else "unknown"
    text = f" Relative error of the gradients, in probed steps: 0.33 with other, {one} with base."
    plain = sentence(FOUND)
    assert sentence(replace(FOUND, quantities=(*FOUND.quantities, error))) == plain + text
    for same in (replace(lost, b=1e-7), replace(lost, a=0.33, b=0.34)):
        alike = replace(FOUND, quantities=(*FOUND.quantities, replace(error, difference=same)))
        assert sentence(alike) == plain


def test_a_part_that_is_not_shown_is_not_said() -> None:
    """Nor one that is a tenth of the difference or less."""
    parts = tuple(
        replace(one, difference=replace(one.difference, verdict="not shown")) for one in FOUND.parts
    )
    assert sentence(replace(FOUND, parts=parts)).endswith("; no stage is shown to account for it.")
    assert FOUND.sentence.count(" ms of ") == 1


TENTH = Difference(
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
    assert within(TENTH, "ns") == f"{MINUS}30.0 to {MINUS}10.0"
    exact = Difference(a=1, b=2, difference=1, low=1, high=1, verdict="differs")
    unknown = Difference(a=1, b=None, verdict="unknown", why="because")
    assert [within(exact, "bytes"), within(unknown, "ns")] == ["exact", "-"]
    assert [share(TENTH, "ns"), share(TENTH, "share"), share(unknown, "ns")] == [
        f"{MINUS}10 %",
        "-",
        "-",
    ]
