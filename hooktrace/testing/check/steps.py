"""One step of the check: what each rank put in, what came out, and what was still owed.

With r the result, a the average of the ranks' gradients and d what earlier steps still owe (the sum
of all a - r so far), a result is explained where one of these is within the wire's tolerance:

    |r - a| / |a|              it is the average
    |r - (a + d)| / |a + d|    it is, with error feedback (Seide et al., 1-bit SGD, 2014), which
                               adds to a step what it left out in earlier ones
    |r - f| / |f|              f = sum of c_r g_r, with 0 < c_r <= 1/n for each parameter: clipping
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from ...probes.compare import measure, numbers
from ...records import ErrorRecord

_SLACK = 0.05
_ALIKE = 1e-9
_BOUNDED = 0.1
"""Of the distance to the average."""

_REBUILT = 2
_HALVINGS = 40


class Flaw(NamedTuple):
    """What was seen, by how much, what does that, and the remedy.

    ``only_warns``: it may be meant.  ``kind``: of ``records.anomalies``.
    """

    what: str
    remedy: str
    only_warns: bool = False
    kind: str = "wrong_gradients"


FEED_BACK = "add what was left out once: residual = input - sent, where input = gradient + residual"
"""The remedy of wrong error feedback."""


@dataclass(frozen=True)
class Step:
    """All gradients of one step, flat.

    ``result``: (numel,), as DDP left them.  ``gradients``: (ranks, numel) float64, of each rank.
    ``owed``: (numel,) float64.  ``lengths``: of the parameters.  ``phase``: what was tried.
    """

    number: int
    result: torch.Tensor
    gradients: torch.Tensor
    owed: torch.Tensor
    lengths: tuple[int, ...]
    phase: str = ""

    @cached_property
    def average(self) -> torch.Tensor:
        """What DDP should have left, float64."""
        return self.gradients.sum(0) / len(self.gradients)

    @property
    def target(self) -> torch.Tensor:
        """What error feedback would have compressed."""
        return self.average + self.owed

    @cached_property
    def wide(self) -> torch.Tensor:
        """The result as float64."""
        return self.result.double()

    @property
    def is_finite(self) -> bool:
        """Whether the result is."""
        return bool(self.result.isfinite().all())

    @property
    def is_rest(self) -> bool:
        """Whether all gradients were zeros."""
        return not self.gradients.any()

    @property
    def error(self) -> float:
        """Relative L2 error, as probes measure it; inf where NaN or inf make it meaningless."""
        found = self._numbers.relative_l2
        return math.inf if found is None else found

    @property
    def cosine(self) -> float:
        """Cosine similarity, as probes measure it."""
        return self._numbers.cosine or 0.0

    @property
    def error_with_feedback(self) -> float:
        """Relative L2 error against the average and what is owed."""
        return distance(self.wide, self.target)

    @property
    def unexplained(self) -> float:
        """The least of the errors: what neither averaging nor feedback nor clipping explains."""
        return min(self.error, self.error_with_feedback, self.error_of_clipping)

    @property
    def error_of_clipping(self) -> float:
        """Relative L2 distance to the nearest clipped average; inf where none is near."""
        return math.inf if self.clipped is None else distance(self.wide, self.clipped)

    @property
    def meant(self) -> torch.Tensor:
        """What the result is nearest to: the average, with what is owed, or clipped."""
        meant = [self.average, self.target, self.average if self.clipped is None else self.clipped]
        return min(meant, key=lambda each: (self.wide - each).norm().item())

    @cached_property
    def clipped(self) -> torch.Tensor | None:
        """The clipped average that is nearest to the result; ``None`` where none is near."""
        ranks = len(self.gradients)
        near = []
        for own, result in zip(
            self.gradients.split(self.lengths, 1), self.wide.split(self.lengths), strict=True
        ):
            weights = fit(own, result)
            if weights is None or not all(0 < w * ranks <= 1 + _SLACK for w in weights.tolist()):
                # Too alike to be told apart: one factor for all.
                mean = own.sum(0) / ranks
                share = (result @ mean / (mean @ mean)).item() if mean.any() else 0.0
                if not 0 <= share <= 1 + _SLACK:
                    return None
                weights = torch.full((ranks,), share / ranks, dtype=torch.float64)
            near.append(weights @ own)
        clipped = torch.cat(near)
        return clipped if clipped.any() else None

    @cached_property
    def _numbers(self) -> ErrorRecord:
        numel = self.result.numel()
        return numbers(measure(self.result, self.average.float(), [numel]).tolist(), numel)


class Ledger:
    """Makes steps, and adds up what they still owe."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self._lengths = lengths
        self.clear()

    def clear(self) -> None:
        """Take it that nothing is owed: all has arrived, but for what is lost for good."""
        self._owed = torch.zeros(sum(self._lengths), dtype=torch.float64)

    def step(
        self, number: int, result: torch.Tensor, gradients: torch.Tensor, phase: str = "ordinary"
    ) -> Step:
        """Return a step of a result (numel,) and each rank's gradients (ranks, numel)."""
        step = Step(number, result, gradients, self._owed, self._lengths, phase)
        # DDP's first steps have buckets of their own, and what a hook keeps of them may go with
        # them, as it may with what is not finite.
        if step.is_finite and number >= _REBUILT:
            self._owed = step.target - step.wide
        else:
            self.clear()
        return step


def bounded(step: Step) -> float | None:
    """Return the bound of a result that is the average but for one of its elements' size.

    Of the average itself, or of each rank's gradients.
    """
    for given in (step.average[None], step.gradients):
        low, high = 0.0, given.abs().max().item()
        largest = high
        for _ in range(_HALVINGS):
            limit = (low + high) / 2
            near = given.clamp(-limit, limit).mean(0)
            low, high = (limit, high) if near.norm() < step.wide.norm() else (low, limit)
        near = given.clamp(-high, high).mean(0)
        if high < largest and distance(step.wide, near) < _BOUNDED * step.error:
            return high
    return None


def larger_parts(step: Step) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the gradients (n, numel) and the result (numel,) of each of the larger parameters."""
    parts = zip(step.gradients.split(step.lengths, 1), step.wide.split(step.lengths), strict=True)
    return [(own, part) for own, part in parts if len(part) >= max(step.lengths)]


def fit(columns: torch.Tensor, result: torch.Tensor) -> torch.Tensor | None:
    """Return the weights (n,) of ``columns`` (n, numel) in a result, by least squares.

    ``None`` where the columns are too much alike, or too short, to be told apart.
    """
    norms = columns.norm(dim=1)
    if columns.shape[1] < 4 * len(columns) or not (norms > 0).all():
        return None
    unit = columns / norms[:, None]
    gram = unit @ unit.T
    if torch.linalg.eigvalsh(gram)[0] < _ALIKE:
        return None
    solved: torch.Tensor = torch.linalg.solve(gram, unit @ result) / norms
    return solved


def distance(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return |result - expected| / |expected|; of two zeros 0."""
    off, norm = (result - expected).norm().item(), expected.norm().item()
    return off / norm if norm else (math.inf if off else 0.0)


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of two vectors; 0 where one is zero."""
    norms = (one.norm() * other.norm()).item()
    return (one @ other).item() / norms if norms else 0.0
