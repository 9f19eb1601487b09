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
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch

from .gradients import Shapes, Who, gradients, lengths_of_shapes
from .wire import Heard, WireFormat, format_of

Call = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, Heard]]
"""A hook: of all ranks' gradients, (ranks, their numel), returns this rank's result, (numel,), what
each rank gave for it, (ranks, numel), and what this rank was seen to send."""

_NOTHING = 1e-5
"""Of the largest step: a result below that stands for zeros."""

ALIKE = 0.03
"""By how much a weight may be off a factor that it is."""

_REBUILT = 2
"""Steps until DDP has its buckets."""

_MOST = 0.9
_SAME = 1 / (1 << 16)
"""Of the largest value: the ranks' sum may be rounded in several ways."""


@dataclass(frozen=True)
class Step:
    """One call of the hook for all gradients.

    ``result``, ``average``, ``owed``: (numel,) float64, what came, what should have, and what
    earlier steps still owed.  ``size``: the norm of the mean of the ranks' absolute values, which
    may be more than the average's.  ``sent``: by this rank, as far as it was seen.
    """

    number: int
    phase: str
    result: torch.Tensor
    average: torch.Tensor
    owed: torch.Tensor
    size: float
    sent: Heard

    @cached_property
    def norm(self) -> float:
        """The result's norm; NaN or inf if the result is not finite."""
        return float(self.result.norm())

    @cached_property
    def error(self) -> float:
        """How far the result is from the average, or from that with what is owed if it is nearer.

        Over the larger norm of that and ``size``, since each rank's own gradients are rounded: 0 to
        inf.
        """
        dues = self.average, self.average + self.owed
        off, norm = min((float((self.result - due).norm()), float(due.norm())) for due in dues)
        found = off / (max(norm, self.size) or 1.0)
        return found if math.isfinite(found) else math.inf


@dataclass
class Run:
    """The steps of one hook that began with nothing kept, as one rank saw them.

    ``call``: the hook.  ``who``: whose gradients are not zero.  ``shapes``: of what each rank
    gives.  ``lengths``: of the parameters in a result.  ``divisor``: of the sum over ``ranks``.
    ``dtype``: of the gradients.  ``more``: what else is particular.  ``wrong``: the kind of anomaly
    that a wrong result is.
    """

    call: Call
    who: Who
    shapes: Shapes
    lengths: tuple[int, ...]
    ranks: int
    divisor: float
    dtype: torch.dtype = torch.float32
    more: str = ""
    wrong: str = "wrong_gradients"
    steps: list[Step] = field(default_factory=list)
    wire: WireFormat = field(default_factory=WireFormat)

    @property
    def name(self) -> str:
        """Whose gradients it has, for a sentence."""
        names = {"alike": "all ranks alike", "each": "each rank its own"}
        return names.get(str(self.who), f"rank {self.who} alone") + self.more

    def play(self, *phases: tuple[str, int]) -> None:
        """Call the hook with the gradients of some phases, and look at what it sends for them."""
        for phase in (name for name, count in phases for _ in range(count)):
            number = len(self.steps)
            rows = gradients(phase, number, self.shapes, self.ranks, self.who).to(self.dtype)
            result, given, sent = self.call(rows)
            given = given.double() / self.divisor
            # To what float32 can hold, as the hook's result is.
            average, size = given.sum(0).float().double(), float(given.abs().sum(0).norm())
            owed = torch.zeros_like(average)
            if self.steps:
                last = self.steps[-1]
                # A hook had better lose what is not finite.
                owed = (last.average + last.owed - last.result).nan_to_num(0.0, 0.0, 0.0)
            step = Step(number, phase, result.double(), average, owed, size, sent)
            self.steps.append(step)
        late = self.steps[max(self.active[0].number, _REBUILT) :]
        numel = sum(lengths_of_shapes(self.shapes)) * len(late)
        self.wire = format_of([one for step in late for one in step.sent], numel, self.ranks)

    def of(self, *phases: str) -> list[Step]:
        """Return the steps of some phases."""
        return [step for step in self.steps if step.phase in phases]

    @property
    def active(self) -> list[Step]:
        """The steps of ordinary gradients, small enough that no clipping is felt."""
        return self.of("fresh", "same", "ordinary", "after")

    @cached_property
    def least(self) -> float:
        """The norm of a result from which on it is more than zeros."""
        return _NOTHING * max(float(step.average.norm()) for step in self.active)

    @cached_property
    def came(self) -> list[Step]:
        """The active steps that gave something."""
        return [step for step in self.active if step.norm > self.least]

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
        return bool(self.wire.width) and all(s.error <= self.tolerance for s in self.active)

    @cached_property
    def rounds_by_chance(self) -> bool:
        """Whether the same gradients give two values an element: random rounding (QSGD, TernGrad).

        The sum of n ranks that round alike gradients has one of n + 1 values.  What is sent in 16
        bits or more needs no such rounding.
        """
        same = [step.result for step in self.of("same")]
        if self.keeps or self.wire.width > 1 or not same:
            return False
        values = torch.stack(same).sort(0).values
        times = (values.diff(dim=0) > _SAME * values.abs().max()).sum(0)
        few = (times > 0) & (times <= (self.ranks if self.who == "alike" else 1))
        return bool(few.any()) and int(few.sum()) >= _MOST * int((times > 0).sum())

    def inner(self, *whole: torch.Tensor) -> list[torch.Tensor]:
        """Return vectors without the ends of parameters, which are so large that they rule."""
        bounds = torch.tensor([0, *self.lengths]).cumsum(0)
        both = torch.cat([bounds[:-1], bounds[1:] - 1])
        ends = both[torch.tensor(self.lengths * 2) > 0]
        return [vector.index_fill(0, ends, 0.0) for vector in whole]

    def error(self, step: Step) -> float:
        """Return a step's error; 0 for a projection of what was meant, if the rest comes later."""
        is_part = self.keeps and abs(projected(step.result, self.meant(step)) - 1) <= ALIKE
        return 0.0 if is_part else step.error

    def meant(self, step: Step) -> torch.Tensor:
        """Return what a step's result is measured by: its average, and what is kept."""
        return step.average + step.owed if self.keeps else step.average

    def summary(self) -> str:
        """Say how much is lost, of a step and of the sum of all, and how much less is sent."""
        average = torch.stack([step.average for step in self.active])
        off = torch.stack([step.result for step in self.active]) - average
        each = float((off.norm(dim=1) / average.norm(dim=1)).median())
        of_sum = float(off.sum(0).norm() / average.sum(0).norm())
        sent = "what it sends was not seen, so how much it may lose is not judged"
        if self.wire.bits:
            sent = f"compression {32 / self.wire.bits:.3g}"
        return f"relative error of a step {each:.2g}, of their sum {of_sum:.2g}; {sent}"


def fitted(result: torch.Tensor, meant: torch.Tensor) -> tuple[float, float]:
    """Return the weight by least squares, and the share of the result that it leaves."""
    weight = float(result @ meant / (meant @ meant))
    return weight, float((result - weight * meant).norm() / result.norm())


def projected(result: torch.Tensor, meant: torch.Tensor) -> float:
    """Return the weight of a result that is a multiple of a projection of what was meant."""
    return float(result @ result / (result @ meant))


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the cosine of two vectors; 0 if one is zero."""
    return float(torch.cosine_similarity(one, other, dim=0, eps=1e-300))
