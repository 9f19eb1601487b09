"""What was tried of a hook, in numbers: a Run is the steps of one scenario, as one rank saw them.

With r a step's result, a what is due (the average of the ranks' gradients; of FSDP's collectives
their sum over the divisor) and d what earlier steps still owe (the sum of all a - r so far):

    |r - a| / |a|            0 where the result is the average
    |r - (a + d)| / |a + d|  0 with error feedback (Seide et al., 1-bit SGD, 2014), which adds to a
                             step what it left out in earlier ones
    <r, x> / <x, x>          the weight of x = a or a + d in the result, by least squares
    <r, r> / <r, x>          its weight where r is w times a projection of x, as kept elements,
                             low ranks and scaled signs are: 1 for w = 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch

from .wire_format import NOT_KNOWN, WireFormat

NOTHING = 1e-5
"""Of the largest step: what a result may be that stands for zeros."""

CHANCE = 5.0
"""Standard deviations."""

Who = int | Literal["alike", "each"]
"""One rank, whose gradients are not zero, or all ranks: alike, or each with its own."""

_MOST = 0.9
_APART = 1 << 16
_CLEAN = 0.2
_ALMOST = 0.02
"""Of a result: scatter around a multiple of what is due."""


@dataclass(frozen=True)
class Step:
    """One call of the hook for all gradients.

    ``phase``: what was tried.  ``result``, ``average``, ``owed``: (numel,) float64, what came, what
    was due, and what earlier steps still owed.  ``size``: the norm of the mean of the ranks'
    absolute values, which is more than the average's where they cancel.
    """

    number: int
    phase: str
    result: torch.Tensor
    average: torch.Tensor
    owed: torch.Tensor
    size: float

    @property
    def is_finite(self) -> bool:
        """Whether the result is."""
        return bool(self.result.isfinite().all())

    @cached_property
    def due(self) -> torch.Tensor:
        """What the result is nearer to: the average, or that with what is owed."""
        both = self.average + self.owed
        near = (self.result - self.average).norm() <= (self.result - both).norm()
        return self.average if near else both

    @cached_property
    def error(self) -> float:
        """How far the result is from what is due, over the gradients' norm: 0 to inf.

        Rounding is of the ranks' own gradients, which may cancel.
        """
        off, norm = float((self.result - self.due).norm()), float(self.due.norm())
        found = off / (max(norm, self.size) or 1.0)
        return found if math.isfinite(found) else math.inf


class Fit(NamedTuple):
    """How much of what was meant is in a result.

    ``weight``: by least squares.  ``scatter``: what that leaves of the result, over its norm.
    ``of_projection``: the weight where the result is a projection of what was meant.  ``cosine``:
    with the step's own average.  All but that of a projection are without the ends of parameters,
    in which chance would show most.
    """

    weight: float
    scatter: float
    of_projection: float
    cosine: float


class Weight(NamedTuple):
    """How much a run's gradients weigh: ``value`` times what they should.

    ``above``, ``below``: by how much that may differ from 1.
    """

    value: float
    above: float
    below: float

    @property
    def is_right(self) -> bool:
        """Whether it is 1, but for chance and what the format loses."""
        return 1 - self.below <= self.value <= 1 + self.above


@dataclass
class Run:
    """The steps of one hook that began with nothing kept, as one rank saw them.

    ``who``: whose gradients are not zero.  ``lengths``: of the parameters in a result.
    ``divisor``: of the sum over ``ranks``.  ``dtype``: of the gradients.  ``more``: what else is
    particular.  ``wrong``: the kind of anomaly that a wrong result is.  ``agrees``: all ranks have
    had the same results.
    """

    who: Who
    lengths: tuple[int, ...]
    ranks: int
    divisor: float
    dtype: torch.dtype = torch.float32
    more: str = ""
    wrong: str = "wrong_gradients"
    steps: list[Step] = field(default_factory=list)
    wire: WireFormat = NOT_KNOWN
    agrees: bool = True

    @property
    def name(self) -> str:
        """Whose gradients it has, for a sentence."""
        names = {"alike": "all ranks alike", "each": "each rank its own"}
        return names.get(str(self.who), f"rank {self.who} alone") + self.more

    def add(self, phase: str, result: torch.Tensor, given: torch.Tensor) -> Step:
        """Add a step of a result (numel,) and what each rank gave for it, (ranks, numel)."""
        # To what float32 can hold, as the hook's result is.
        average = (given.double().sum(0) / self.divisor).float().double()
        size = float((given.double().abs().sum(0) / self.divisor).norm())
        last = self.steps[-1] if self.steps else None
        owed = torch.zeros_like(average)
        if last is not None:
            owed = last.average + last.owed - last.result
        if not owed.isfinite().all():  # what a hook kept of that it had better lose too
            owed = torch.zeros_like(average)
        step = Step(len(self.steps), phase, result.double(), average, owed, size)
        self.steps.append(step)
        return step

    def of(self, *phases: str) -> list[Step]:
        """Return the steps of some phases."""
        return [step for step in self.steps if step.phase in phases]

    @cached_property
    def active(self) -> list[Step]:
        """The steps of ordinary gradients, small enough that no clipping is felt."""
        return self.of("first", "fresh", "same", "ordinary", "unused", "joined", "after")

    @cached_property
    def ends(self) -> torch.Tensor:
        """The places of the first and the last element of each parameter."""
        bounds = torch.tensor([0, *self.lengths]).cumsum(0)
        both = torch.cat([bounds[:-1], bounds[1:] - 1])
        places: torch.Tensor = both[torch.tensor(self.lengths * 2) > 0].unique()
        return places

    @cached_property
    def least(self) -> float:
        """The norm of a result from which on it is more than zeros."""
        return NOTHING * max(float(step.average.norm()) for step in self.active)

    @cached_property
    def keeps(self) -> bool:
        """Whether the hook keeps something for later: zeros give a result after other gradients."""
        return any(step.result.norm().item() > self.least for step in self.of("rest", "end"))

    @cached_property
    def is_fine(self) -> bool:
        """Whether each result is what is due, but for what the wire explains."""
        return self.wire.is_bounded and all(s.error <= self.tolerance for s in self.active)

    @cached_property
    def repeats(self) -> torch.Tensor:
        """The results of the same gradients, (steps, numel); none where that was not tried."""
        results = [step.result for step in self.of("same")]
        return torch.stack(results) if results else torch.empty(0, sum(self.lengths))

    @cached_property
    def by_chance(self) -> bool:
        """Whether the same gradients give other results, though nothing is kept."""
        return not self.keeps and bool((self.repeats != self.repeats[:1]).any())

    @cached_property
    def rounds_by_chance(self) -> bool:
        """Whether each element is rounded to one of two neighbouring levels (QSGD, TernGrad).

        The levels of a parameter are the values that it takes in all repeats.
        """
        return self.by_chance and self.share_of_neighbours >= _MOST

    @property
    def tolerance(self) -> float:
        """The relative error of a step that the wire explains; inf where no bound is known."""
        return self.wire.tolerance(self.ranks, self.dtype)

    @cached_property
    def share_of_neighbours(self) -> float:
        """The share of varying elements that take one or the other of two neighbouring levels.

        Of n ranks that round alike gradients, one of the n + 1 that lie between.
        """
        steps = self.ranks if self.who == "alike" else 1
        good = total = 0
        for part in self.repeats.split(self.lengths, 1):
            # The ranks' sum may be rounded in several ways.
            rounded = (part * (_APART / part.abs().amax().clamp(min=1e-30))).round()
            places = torch.searchsorted(rounded.unique(), rounded)
            apart = places.amax(0) - places.amin(0)
            good += int(((apart > 0) & (apart <= steps)).sum())
            total += int((apart > 0).sum())
        return good / max(total, 1)

    def fit(self, step: Step) -> Fit:
        """Return how much of the average, and of what is kept, is in a result."""
        meant = step.average + step.owed if self.keeps else step.average
        result, own, inner = (
            whole.index_fill(0, self.ends, 0.0) for whole in (step.result, step.average, meant)
        )
        weight = dot(result, inner) / (dot(inner, inner) or math.nan)
        norm = result.norm().item()
        scatter = (result - weight * inner).norm().item() / norm if norm else math.inf
        projection = dot(step.result, step.result) / (dot(step.result, meant) or math.nan)
        return Fit(weight, scatter, projection, cosine(result, own))

    @cached_property
    def weight(self) -> Weight | None:
        """How much its gradients weigh; ``None`` where the results are no multiple of them.

        Of a hook that keeps something: in the last step that owed nothing, or the first one that
        gave something.  Of others: in the mean of all steps, within chance.
        """
        came = [step for step in self.active if step.result.norm().item() > self.least]
        if self.keeps:
            came = [step for step in came if step.owed.norm() <= self.least][-1:] or came[:1]
        if not came:
            return None
        fits = [self.fit(step) for step in came]
        scatter = sum(fit.scatter for fit in fits) / len(fits)
        if self.who == "each" and scatter > _ALMOST:
            return None  # a sum of several projections is none
        most = {"exact": _ALMOST, "half": _ALMOST, "byte": _CLEAN}.get(self.wire.kind, math.inf)
        if scatter > most and not self.keeps and not self.rounds_by_chance:
            return None
        means = [mean_of([fit.weight for fit in fits])]
        if scatter > _CLEAN:
            projections = mean_of([fit.of_projection for fit in fits])
            means = [projections, *means] if self.by_chance else [projections]
        value, chance = min(means, key=lambda found: abs(math.log(max(found[0], 1e-30))))
        return Weight(value, *self._slack(scatter, chance))

    def _slack(self, scatter: float, chance: float) -> tuple[float, float]:
        """Return by how much a weight may be above 1, and below.

        Rounding to the nearest power of 1.4, which is off by 8 %, adds 0.6 %, and no format adds
        more; truncation makes an element smaller by the square root of 3 times its deviation.
        """
        if self.wire.kind in ("exact", "half") and scatter <= self.tolerance:
            return self.tolerance, self.tolerance
        if self.wire.kind == "byte":
            return max(chance, 0.015), max(chance, 0.003 + 1.6 * min(scatter, _CLEAN))
        return max(chance, 0.02), max(chance, 0.02)


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of values, and by how much chance may move it."""
    found = torch.tensor(values, dtype=torch.float64)
    spread = found.std().item() if len(values) > 1 else 0.0
    return found.mean().item(), CHANCE * spread / math.sqrt(len(values))


def dot(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the product of two vectors."""
    return (one @ other).item()


def distance(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return |result - expected| / |expected|; of two zeros 0."""
    off, norm = (result - expected).norm().item(), expected.norm().item()
    return off / norm if norm else (math.inf if off else 0.0)


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of two vectors; 0 where one is zero."""
    norms = (one.norm() * other.norm()).item()
    return dot(one, other) / norms if norms else 0.0
