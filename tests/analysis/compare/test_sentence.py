"""The sentence: only what is shown to differ, and how sides are called."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare import compare_runs
from hooktrace.analysis.compare.comparison import Comparison, Difference, Quantity
from hooktrace.analysis.compare.sentence import (
    by_median_alone,
    mostly_outside,
    sentence,
    side_names,
)

from .jobs import compared, measures

FOUND = compared(bytes_per_second=2.5e8)


def changed(step: Difference) -> Comparison:
    """Return a comparison with another difference of the step time."""
    first, *others = FOUND.quantities
    return replace(FOUND, quantities=(replace(first, difference=step), *others))


def test_sides_are_hooks_or_runs() -> None:
    """Runs where the hooks are equal, and the first of several."""
    a, b = measures("base").facts, measures("other", hook="fp16_compress_hook").facts
    assert side_names([a], [b]) == ("allreduce_hook", "fp16_compress_hook")
    assert side_names([a], [a, a, a]) == ("base", "base and 2 more")


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


def test_what_no_hook_does_is_said() -> None:
    """A busy machine is no slow hook."""
    found = compared(forward_ms=50.0, hook="fp16_compress_hook")
    assert (
        "slower than allreduce_hook, though mostly where a hook does nothing: +" in found.sentence
    )
    assert mostly_outside(found)
    said = "most of the step time's difference is outside of communication"
    assert any(said in text for text in found.doubts)
    assert not any(said in text for text in FOUND.doubts)
    assert not mostly_outside(FOUND)


def test_slow_steps_may_cost_what_the_median_gains() -> None:
    """A job that is quicker in most steps, and stops in each fourth, is not simply faster."""
    base, spiky = measures("base", late_ms={1: 4.0}), measures("other", seed=1, slow_every=4)
    found = compare_runs([base], [spiky])
    assert by_median_alone(found)
    assert "faster than base by the median step, not by the mean: " in found.sentence
    assert any("it is what a whole run costs" in text for text in found.doubts)
    assert not by_median_alone(FOUND)


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


def test_sending_less_without_a_probe_is_said() -> None:
    """Of another hook, which is not known to lose nothing."""
    found = compared(wire_share=0.5, hook="fp16_compress_hook")
    assert found.sentence.endswith(
        " What the gradients lose is unknown, because no probe measured it; pass a smaller "
        "error_every."
    )
    assert "lose" not in compared(wire_share=0.5).sentence


def test_a_part_that_is_not_shown_is_not_said() -> None:
    """Nor one that is a tenth of the difference or less."""
    parts = tuple(
        replace(one, difference=replace(one.difference, verdict="not shown")) for one in FOUND.parts
    )
    assert sentence(replace(FOUND, parts=parts)).endswith("; no stage is shown to account for it.")
    assert FOUND.sentence.count(" ms of ") == 1
