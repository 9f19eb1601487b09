"""What was tried of a hook, in numbers: a Run is the steps of one scenario, as one rank saw them.

With r a step's result, a the average that it should be (of FSDP's collectives the sum over the
divisor), and d what earlier steps still owe (the sum of all a - r so far):

    |r - a| / |a|            0 if the result is the average
    |r - (a + d)| / |a + d|  0 with error feedback (Seide et al., 1-bit SGD, 2014), which adds to a
                             step what it left out in earlier ones
    <r, x> / <x, x>          the weight of x = a or a + d in the result, by least squares
    <r, r> / <r, x>          its weight if r is w times a projection of x, as kept elements, low
                             ranks and scaled signs are: 1 for w = 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch

from ...probes.factors import named_factors
from .wire_format import NOT_KNOWN, WireFormat

_ALIKE = 0.03
"""By how much a weight may be off a factor that it is."""

_CHANCE = 5.0
"""Standard deviations."""

Who = int | Literal["alike", "each"]
"""One rank, whose gradients alone are not zero, or all ranks: alike, or each with its own."""

_NOTHING = 1e-5
"""Of the largest step: a result below that stands for zeros."""

_CLEAN = 0.2
_ALMOST = 0.02
"""Of a result: scatter around a multiple of what is due."""

_MOST = 0.9
_SAME = 1 / (1 << 16)
"""Of the largest value: the ranks' sum may be rounded in several ways."""


@dataclass(frozen=True)
class Step:
    """One call of the hook for all gradients.

    ``result``, ``average``, ``owed``: (numel,) float64, what came, what should have, and what
    earlier steps still owed.  ``size``: the norm of the mean of the ranks' absolute values, which
    is more than the average's if they cancel.
    """

    number: int
    phase: str
    result: torch.Tensor
    average: torch.Tensor
    owed: torch.Tensor
    size: float

    @cached_property
    def is_finite(self) -> bool:
        """Whether the result is."""
        return bool(self.result.isfinite().all())

    @cached_property
    def norm(self) -> float:
        """The result's norm."""
        return float(self.result.norm())

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
        found = float((self.result - self.due).norm()) / (max(self.due.norm(), self.size) or 1.0)
        return found if math.isfinite(found) else math.inf


class Weight(NamedTuple):
    """A run's gradients weigh ``value`` times what they should; ``is_right``: that may be 1.

    ``slack``: by how much a weight may be off.
    """

    value: float
    is_right: bool
    slack: float


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

    def add(self, phase: str, result: torch.Tensor, given: torch.Tensor) -> None:
        """Add a step with a result (numel,) and what each rank gave for it, (ranks, numel)."""
        # To what float32 can hold, as the hook's result is.
        average = (given.double().sum(0) / self.divisor).float().double()
        size = float((given.double().abs().sum(0) / self.divisor).norm())
        owed = torch.zeros_like(average)
        if self.steps:
            last = self.steps[-1]
            owed = last.average + last.owed - last.result
        if not owed.isfinite().all():  # a hook had better lose that too
            owed = torch.zeros_like(average)
        self.steps.append(Step(len(self.steps), phase, result.double(), average, owed, size))

    def of(self, *phases: str) -> list[Step]:
        """Return the steps of some phases."""
        return [step for step in self.steps if step.phase in phases]

    @cached_property
    def active(self) -> list[Step]:
        """The steps of ordinary gradients, small enough that no clipping is felt."""
        return self.of("first", "fresh", "same", "ordinary", "unused", "joined", "after")

    @cached_property
    def came(self) -> list[Step]:
        """Those of them that gave something."""
        return [step for step in self.active if step.norm > self.least]

    @cached_property
    def least(self) -> float:
        """The norm of a result from which on it is more than zeros."""
        return _NOTHING * max(float(step.average.norm()) for step in self.active)

    @property
    def tolerance(self) -> float:
        """The relative error of a step that the wire explains; inf if no bound is known."""
        return self.wire.tolerance(self.ranks, self.dtype)

    @cached_property
    def keeps(self) -> bool:
        """Whether the hook keeps something for later: zeros give a result after other gradients."""
        return any(step.norm > self.least for step in self.of("rest", "end"))

    @cached_property
    def is_fine(self) -> bool:
        """Whether each result is what is due, but for what the wire explains."""
        return self.wire.is_bounded and all(s.error <= self.tolerance for s in self.active)

    @cached_property
    def repeats(self) -> torch.Tensor:
        """The results of the same gradients, (steps, numel)."""
        results = [step.result for step in self.of("same")]
        return torch.stack(results or [torch.zeros(sum(self.lengths))])

    @cached_property
    def varies(self) -> bool:
        """Whether the same gradients give other results, though nothing is kept."""
        return not self.keeps and bool((self.repeats != self.repeats[:1]).any())

    @cached_property
    def rounds_by_chance(self) -> bool:
        """Whether elements that vary have two values only, as of random rounding (QSGD, TernGrad).

        The sum of n ranks that round alike gradients has one of n + 1 values.  What is sent in 16
        bits or more needs no such rounding.
        """
        if not self.varies or self.wire.width > 1:
            return False
        apart = self.repeats.sort(0).values.diff(dim=0) > _SAME * self.repeats.abs().max()
        times = apart.sum(0)
        few = (times > 0) & (times <= (self.ranks if self.who == "alike" else 1))
        return int(few.sum()) >= _MOST * int((times > 0).sum())

    def inner(self, *whole: torch.Tensor) -> list[torch.Tensor]:
        """Return vectors without the ends of parameters, which are so large that they rule."""
        bounds = torch.tensor([0, *self.lengths]).cumsum(0)
        both = torch.cat([bounds[:-1], bounds[1:] - 1])
        ends = both[torch.tensor(self.lengths * 2) > 0]
        return [vector.index_fill(0, ends, 0.0) for vector in whole]

    def meant(self, step: Step) -> torch.Tensor:
        """Return what a step's result is measured by: its average, and what is kept."""
        return step.average + step.owed if self.keeps else step.average

    @cached_property
    def weight(self) -> Weight | None:
        """How much its gradients weigh; ``None`` if the results are no multiple of them.

        If the hook keeps something: in the last step that owed nothing, or the first one that gave
        something.  Else in the mean of all steps, within chance.
        """
        steps = self.came
        if self.keeps:
            steps = [step for step in steps if step.owed.norm() <= self.least][-1:] or steps[:1]
        if not steps:
            return None
        fits = [self._fit(step) for step in steps]
        scatter = sum(fit[1] for fit in fits) / len(fits)
        is_free = self.keeps or self.rounds_by_chance or not self.wire.is_bounded
        most = math.inf if is_free else _CLEAN if self.wire.width == 1 else _ALMOST
        if scatter > (_ALMOST if self.who == "each" else most):
            return None  # a sum of several ranks' projections is none
        found = [self._weight([fit[0] for fit in fits], scatter)]
        if scatter > _CLEAN:
            parts = [projection(step.result, self.meant(step)) for step in steps]
            found.append(self._weight(parts, scatter))
        # Of places that are chosen by chance, and scaled up, only the mean is right; of a
        # projection that changes from step to step the mean is no factor that has a name.
        named = named_factors(self.divisor).values()
        return max(
            found,
            key=lambda weight: (
                weight.is_right,
                any(is_alike(weight.value, due) for due in named if due != 1.0),
                -abs(math.log(max(weight.value, 1e-30))),
            ),
        )

    def _fit(self, step: Step) -> tuple[float, float]:
        """Return the weight by least squares, and the share of the result that it leaves."""
        result, meant = self.inner(step.result, self.meant(step))
        weight = dot(result, meant) / (dot(meant, meant) or math.nan)
        norm = result.norm().item()
        return weight, (result - weight * meant).norm().item() / norm if norm else math.inf

    def _weight(self, values: Sequence[float], scatter: float) -> Weight:
        """Return the mean of some steps' weights.

        Rounding to the nearest power of 1.4, which is off by 8 %, adds 0.6 %, and no format adds
        more; truncation makes an element smaller by the square root of 3 times its deviation.
        """
        found = torch.tensor(values, dtype=torch.float64)
        spread = found.std().item() if len(values) > 1 else 0.0
        chance = _CHANCE * spread / math.sqrt(len(values))
        below = above = max(chance, 0.02)
        if self.wire.width > 1 and scatter <= self.tolerance:
            below = above = self.tolerance
        elif self.wire.width == 1:
            below = max(chance, 0.003 + 1.6 * min(scatter, _CLEAN))
            above = max(chance, 0.015)
        value = found.mean().item()
        return Weight(value, 1 - below <= value <= 1 + above, above)


def is_alike(value: float, due: float) -> bool:
    """Return whether a weight is a factor that it may be."""
    return math.isclose(value, due, rel_tol=_ALIKE)


def dot(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the product of two vectors."""
    return (one @ other).item()


def projection(result: torch.Tensor, meant: torch.Tensor) -> float:
    """Return the weight of a result that is a multiple of a projection of what was meant."""
    return dot(result, result) / (dot(result, meant) or math.nan)


def distance(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return |result - expected| / |expected|; 0 for two zeros."""
    off, norm = (result - expected).norm().item(), expected.norm().item()
    return off / norm if norm else (math.inf if off else 0.0)


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of two vectors; 0 if one is zero."""
    norms = (one.norm() * other.norm()).item()
    return dot(one, other) / norms if norms else 0.0
