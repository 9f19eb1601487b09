"""The sentence says only what is shown to differ; numbers have their sign and unit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare.comparison import Comparison, Difference, Quantity, Unit
from hooktrace.analysis.compare.sentence import (
    MINUS,
    sentence,
    share,
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


NOT_SHOWN = Difference(a=1e8, b=1.01e8, difference=1e6, low=-1e6, high=3e6, verdict="not shown")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            replace(NOT_SHOWN, why="the halves of one run differ by more"),
            "Between these two runs, the step time is not shown to differ: 101 ms with other, 100 "
            "ms with base (\N{MINUS SIGN}1.00 to +3.00 ms), and the halves of one run differ by "
            "more. Shown to differ: ",
        ),
        (
            Difference(a=1e8, b=1e8, difference=0, low=0, high=0, verdict="same"),
            "Between these two runs, the step time is the same, 100 ms",
        ),
    ],
    ids=["drifts", "same"],
)
def test_what_is_not_shown_is_said_with_its_reason(step: Difference, said: str) -> None:
    """Not as if nothing differed; and what else is shown to differ."""
    assert sentence(changed(step)).startswith(said)


@pytest.mark.parametrize("a", [0.0, None])
def test_what_gradients_lose_is_in_the_headline(a: float | None) -> None:
    """Also where few steps were probed, and where one run has none; not where it is rounding."""
    lost = Difference(a=a, b=0.33, verdict="unknown", why="two are too few")
    error = Quantity(key="error", title="relative error", unit="error", difference=lost)
    one = "0" if a is not None else "unknown"
    text = f" Relative error of the gradients, in probed steps: 0.33 with other, {one} with base."
    for difference, said in (
        (lost, text), (replace(lost, b=1e-7), ""), (replace(lost, a=0.33, b=0.34), ""),
    ):  # fmt: skip
        quantities = *FOUND.quantities, replace(error, difference=difference)
        assert sentence(replace(FOUND, quantities=quantities)) == FOUND.sentence + said


def test_a_part_that_is_not_shown_is_not_said() -> None:
    """Nor one that is a tenth of the difference or less."""
    parts = tuple(
        replace(one, difference=replace(one.difference, verdict="not shown")) for one in FOUND.parts
    )
    assert sentence(replace(FOUND, parts=parts)).endswith("; no stage is shown to account for it.")
    assert FOUND.sentence.count(" ms of ") == 1


@pytest.mark.parametrize(
    ("number", "unit", "plain", "as_difference"),
    [
        (4e6, "ns", "4.00", "+4.00"), (4e6, "bytes", "4.00", "+4.00"),
        (0.5, "share", "50 %", "+50 %"), (0.00031234, "error", "0.000312", "+0.000312"),
        (0, "ns", "0.00", "0.00"), (None, "ns", "unknown", "-"),
    ],
)  # fmt: skip
def test_values_have_no_unit_and_differences_a_sign(
    number: float | None, unit: Unit, plain: str, as_difference: str
) -> None:
    """The table's head has the unit; a dash is for what nobody knows."""
    assert (value(number, unit), signed(number, unit)) == (plain, as_difference)


TENTH = Difference(
    a=2e8, b=1.8e8, difference=-2e7, low=-3e7, high=-1e7, share=-0.1, verdict="differs"
)


def test_intervals() -> None:
    """Of a constant there is none to give."""
    exact = Difference(a=1, b=2, difference=1, low=1, high=1, verdict="differs")
    unknown = Difference(a=1, b=None, verdict="unknown", why="because")
    intervals = [within(one, "ns") for one in (TENTH, exact, unknown)]
    assert intervals == [f"{MINUS}30.0 to {MINUS}10.0", "exact", "-"]
    shares = [share(TENTH, "ns"), share(TENTH, "share"), share(unknown, "ns")]
    assert shares == [f"{MINUS}10 %", "-", "-"]
    assert [signed_ms(1e6), signed_ms(None)] == ["+1.00 ms", "unknown"]
