"""The sentence says only what is shown to differ; how numbers are written is in ``golden/``."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare.comparison import Comparison, Difference, Quantity
from hooktrace.analysis.compare.sentence import sentence

from .jobs import compared

FOUND = compared(bytes_per_second=2.5e8)


def changed(step: Difference) -> Comparison:
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
    """Also where few steps were checked, and where one run has none; not where it is rounding."""
    lost = Difference(a=a, b=0.33, verdict="unknown", why="two are too few")
    error = Quantity(key="error", title="relative error", unit="error", difference=lost)
    one = "0" if a is not None else "unknown"
    text = f" Relative error of the gradients, in sampled steps: 0.33 with other, {one} with base."
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


def test_a_rank_that_is_late_in_both_runs_is_not_laid_on_one() -> None:
    found = compared(late_ms={1: 20.0})
    assert "waiting for rank 1, late in other" in sentence(found)
    beside = replace(found, a=replace(found.a, late=found.b.late))
    assert "waiting for rank 1, late in both" in sentence(beside)
