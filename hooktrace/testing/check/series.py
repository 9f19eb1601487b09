"""All steps of the case ``arithmetic``, what was on the wire, and what a hook makes of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from .steps import Step, cosine
from .wire_format import Kind, WireFormat

CHANCE = 5.0
"""Standard deviations."""

TWICE = 1.3
"""Of what is owed: clearly more than once."""

_ALIKE = 0.3
_FEW_VALUES = 0.5
_FINE = 0.05
_BIASED = 0.15
_INDEPENDENT = 3.0
_AGAIN = 0.8
_FEW_LEVELS = 0.1
_POWERS = 0.3
"""A power of two by chance is off by a quarter of the value, and by 0.35 at worst."""


class Series(NamedTuple):
    """All steps of the case, in order, and what was on the wire."""

    steps: Sequence[Step]
    wire: WireFormat

    def of(self, *phases: str) -> list[Step]:
        """Return the steps of some phases."""
        return [step for step in self.steps if step.phase in phases]

    @property
    def chance(self) -> float:
        """A cosine that two vectors which have nothing to do with each other do not reach."""
        return CHANCE / math.sqrt(self.steps[0].result.numel())

    def tolerance(self, step: Step) -> float:
        """Return the relative error that the wire explains in a step."""
        return self.wire.tolerance(step.gradients, step.result.dtype)


def is_pointless(series: Series) -> bool:
    """Return whether a hook compresses, feeds back what that loses, and sends all the same."""
    return true_kind(series) != series.wire.kind and not is_unbiased(series)


def is_unbiased(series: Series) -> bool:
    """Return whether the mean of results of the same gradients is the average, but for chance."""
    steps = series.of("same")
    if len(steps) < 2:
        return False
    results = torch.stack([step.wide for step in steps])
    average = steps[0].average
    parts = results @ average / (average @ average)
    chance = CHANCE * parts.std().item() / math.sqrt(len(steps))
    if abs(parts.mean().item() - 1) > max(_BIASED, chance):
        return False
    off = (results.mean(0) - average).norm().item() ** 2
    single = (results - average).norm(dim=1).square().mean().item()
    return bool(len(steps) * off <= _INDEPENDENT * single)


def true_kind(series: Series) -> Kind:
    """Return the kind of the wire, or what the hook makes of numbers that it then sends whole.

    A hook that quantises or leaves out, feeds the loss back, and sends more bits is right, if slow.
    Bytes may also hold few levels each, chosen by chance, so that only the mean of many results is
    the average (QSGD, TernGrad, natural compression).
    That the loss is fed back shows after the impulse, whose results have few values, or a loss that
    is small and has nothing to do with the gradients, as the last bits of a number have not.
    """
    kind = series.wire.kind
    impulse, rests = series.of("impulse"), series.of("rest after")
    if kind == "less" or not impulse or not rests:
        return kind
    step = impulse[-1]
    if step.error <= series.tolerance(step):
        return kind
    if rounds_by_chance(series):
        return "less"
    return _kind_fed_back(step, rests[0], series.chance) or kind


def rounds_by_chance(series: Series) -> bool:
    """Return whether bytes are levels, few or powers of two, of which chance takes one of two.

    So that they are right in the mean.  The same gradients then come out the same again with one
    chance in two at least for each rank, which noise of any other kind has not.
    """
    if series.wire.kind != "byte":
        return False
    step, steps = series.of("impulse")[-1], series.of("same")
    independent = (step.gradients.norm() / step.average.norm()).item() / len(step.gradients)
    if step.error > _POWERS * independent and not _has_few_values(step, _FEW_LEVELS):
        return False
    return comes_again(steps) and is_unbiased(series)


def comes_again(same: Sequence[Step]) -> bool:
    """Return whether results of the same gradients are as often the same as two levels give."""
    differ = [(a.wide != b.wide).double().mean().item() for a, b in pairwise(same)]
    came = torch.stack([step.wide != 0 for step in same]).any(0).double().mean().item()
    least = _AGAIN / 2 ** len(same[0].gradients)
    return bool(sum(differ) <= (1 - least) * came * len(differ))


def _kind_fed_back(step: Step, rest: Step, by_chance: float) -> Kind | None:
    """Return what is left of the impulse ``step`` whose loss comes in the ``rest`` after it."""
    paid = paid_by(rest)
    if paid is None or not 0 < paid <= TWICE or cosine(step.wide, step.average) <= by_chance:
        return None
    if _has_few_values(step):
        return "less"
    lost = step.target - step.wide
    fine = step.error_with_feedback <= _FINE and abs(cosine(lost, step.average)) <= _ALIKE
    return "byte" if fine and paid > 1 - _ALIKE else None


def _has_few_values(step: Step, share: float = _FEW_VALUES) -> bool:
    return len(step.wide.unique()) <= share * len(step.wide)


def paid_by(rest: Step) -> float | None:
    """Return which part of what was owed a step of zeros gave; ``None`` where it gave nothing."""
    owed = (rest.owed @ rest.owed).item()
    if not owed or not rest.wide.any():
        return None
    return (rest.wide @ rest.owed).item() / owed
