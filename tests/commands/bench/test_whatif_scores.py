"""Errors, coverage and advice of cases that are known."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from hooktrace.analysis.whatif.choice import Choice, Prediction
from hooktrace.analysis.whatif.work import SimulatedStep
from hooktrace.commands.bench.whatif_scores import Case, Place, scores

TODAY = ("allreduce", 25.0)


def case(hook: str, measured: float, predicted: float, off: float = 0.1, *, net: str = "a") -> Case:
    """Return a case at 25 MB; ``off``: half of the prediction's interval, as a share."""
    low, high = predicted * (1 - off), predicted * (1 + off)
    nothing = cast(SimulatedStep, None)
    prediction = Prediction(Choice(), predicted, low, high, 0.0, 0.0, None, False, nothing)
    return Case(net, "model", hook, 25.0, (measured, measured, measured), prediction)


def test_errors_are_shares_of_what_was_measured() -> None:
    """The interval is the prediction's own."""
    one = case("fp16", 100.0, 120.0)
    assert one.error == pytest.approx(0.2)
    assert not one.is_inside
    assert case("fp16", 109.0, 100.0).is_inside


def test_what_the_machine_is_slower_by_is_no_error_of_the_prediction() -> None:
    """Had it been as fast, 80 ms would have been measured."""
    slower = replace(case("fp16", 100.0, 80.0), slower_ms=20.0)
    assert (slower.error, slower.error_at_one_speed) == pytest.approx((-0.2, 0.0))
    rows = {row.what: row.value for row in scores([place(case("allreduce", 90, 90), slower)], "2")}
    assert rows["2: the same, had the machine computed as fast as in the calibrated run"] == 0


def place(*cases: Case, advised: tuple[str, ...] = ("fp16",)) -> Place:
    """Return a place where hooks are advised."""
    return Place(cases, TODAY, tuple((hook, 25.0) for hook in advised))


def test_scores_of_two_networks() -> None:
    """On one of them the best is not advised."""
    right = place(case("allreduce", 100, 100), case("fp16", 60, 63))
    wrong = place(
        case("allreduce", 100, 80, net="b"),
        case("fp16", 90, 85, net="b"),
        case("powersgd", 50, 99, net="b"),
    )
    values = [row.value for row in scores([right, wrong], "2 ranks")]
    # Errors: 0, 5, 20, 5.6 and 98 %.
    assert values == pytest.approx([5.556, 66.8, 66.8, 40.0, 50.0, 0.0], abs=0.01)


@pytest.mark.parametrize(
    ("fp16_ms", "advised", "harm"),
    [(120, ("fp16",), 0.2), (120, (), 0.0), (80, ("fp16",), 0.0)],
)
def test_harm(fp16_ms: float, advised: tuple[str, ...], harm: float) -> None:
    """Of a change that is advised, over what is."""
    found = place(case("allreduce", 100, 100), case("fp16", fp16_ms, 50), advised=advised)
    assert found.harm == pytest.approx(harm)


def test_the_best_is_among_the_first_two() -> None:
    """What is within 3 % of it is as good; without advice it must be what is."""
    cases = [case("allreduce", 102, 50), case("fp16", 110, 60), case("powersgd", 100, 70)]
    assert place(*cases, advised=()).is_best_in_front
    assert not place(*cases, advised=("fp16",)).is_best_in_front
    assert place(*cases, advised=("fp16", "powersgd")).is_best_in_front
    assert not place(*cases, advised=("fp16", "fp16", "powersgd")).is_best_in_front
