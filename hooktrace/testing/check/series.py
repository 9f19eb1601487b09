"""All steps of the case ``arithmetic``, what was on the wire, and what a hook makes of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .steps import Step, cosine
from .wire_format import Kind, WireFormat

CHANCE = 5.0
"""Standard deviations."""

TWICE = 1.3
"""Of what is owed: clearly more than once."""

_ALIKE = 0.3
_FEW_VALUES = 0.5
_FINE = 0.05


class Finding(NamedTuple):
    """What was seen, by how much, what does that, and the remedy."""

    what: str
    remedy: str


class Series(NamedTuple):
    """All steps of the case, in order, and what was on the wire."""

    steps: Sequence[Step]
    wire: WireFormat

    def of(self, *phases: str) -> list[Step]:
        """Return the steps of some phases."""
        return [step for step in self.steps if step.phase in phases]


def is_pointless(series: Series) -> bool:
    """Return whether a hook compresses, feeds back what that loses, and sends all the same."""
    return true_kind(series) != series.wire.kind


def true_kind(series: Series) -> Kind:
    """Return the kind of the wire, or what the hook makes of numbers that it then sends whole.

    A hook that quantises or leaves out, feeds the loss back, and sends more bits is right, if slow.
    That the loss is fed back shows after the impulse, whose results have few values, or a loss that
    is small and has nothing to do with the gradients, as the last bits of a number have not.
    """
    kind = series.wire.kind
    impulse, rests = series.of("impulse"), series.of("rest after")
    if kind == "less" or not impulse or not rests:
        return kind
    step, rest = impulse[-1], rests[0]
    if step.error <= step_tolerance(series, step):
        return kind
    paid = paid_by(rest)
    if paid is None or not 0 < paid <= TWICE:
        return kind
    lost = step.target - step.wide
    if cosine(step.wide, step.average) <= chance(series):
        return kind
    if len(step.wide.unique()) <= _FEW_VALUES * len(step.wide):
        return "less"
    fine = step.error_with_feedback <= _FINE and abs(cosine(lost, step.average)) <= _ALIKE
    return "byte" if fine and paid > 1 - _ALIKE else kind


def step_tolerance(series: Series, step: Step) -> float:
    """Return the relative error that the wire explains in a step."""
    return series.wire.tolerance(step.gradients, step.result.dtype)


def chance(series: Series) -> float:
    """Return a cosine that two vectors which have nothing to do with each other do not reach."""
    return CHANCE / math.sqrt(series.steps[0].result.numel())


def paid_by(rest: Step) -> float | None:
    """Return which part of what was owed a step of zeros gave; ``None`` where it gave nothing."""
    owed = (rest.owed @ rest.owed).item()
    if not owed or not rest.wide.any():
        return None
    return (rest.wide @ rest.owed).item() / owed
