"""A DDP model with the hook, traced, whose gradients are known in advance.

    step() --> forward, backward --> Step(result, reference)        what DDP gave, what was due
    settle() --> steps until the tracer probes each of them         so that it can name wrong sums
    judge(steps) --> problems: not finite, not the same on all ranks, far from the average

The loss is the sum of p * g over all parameters p, whose gradient by p is g itself, on all ranks
and for every dtype, NaN included.  So what DDP should give is known everywhere without any
communication: the average over the ranks.

Ordinary gradients look like real ones to a low-rank hook: for each matrix a product of two vectors
that all ranks share, one of the rank's own, and some noise.  They point the same way from step to
step, as error feedback needs it, and change in size.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...tracing.trace import instrument
from ...tracing.tracer import Tracer
from .rank import Context
from .steps import Ledger, Step

MANY = tuple(shape for _ in range(8) for shape in ((48, 48), (48,)))
"""The shapes of eight linear layers, a bucket each."""

_CAP_MB = 0.008
_ONE_BUCKET_MB = 25.0
_FIRST_PROBE = 11
_GIVE_UP = 30
_ENOUGH = 1e-3
_ENOUGH_16_BITS = 2e-2
_SIZE = 0.02
_NOISE = 0.2
_SHARED = 1 << 20

Shapes = Sequence[tuple[int, ...]]
Values = Sequence[torch.Tensor | None]
"""One gradient a parameter; ``None``: the parameter is not used in this step."""

Make = Callable[[int, int], Values]
"""``(rank, step)`` to the gradients of that rank at that step."""


class KnownGradients(nn.Module):
    """Parameters of given shapes whose gradients are what ``forward`` is given."""

    def __init__(self, shapes: Shapes, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.parts = nn.ParameterList(
            torch.randn(shape, generator=generator).to(dtype) for shape in shapes
        )

    def forward(self, values: Values, pauses: Sequence[float] = ()) -> torch.Tensor:
        """Return the loss.  ``pauses``: seconds to sleep in backward before each gradient."""
        terms = []
        for i, (parameter, value) in enumerate(zip(self.parts, values, strict=True)):
            if value is None:
                continue
            used = parameter.view_as(parameter)
            if pauses:
                used.register_hook(lambda gradient, seconds=pauses[i]: time.sleep(seconds))
            terms.append((used * value).sum())
        return torch.stack(terms).sum()


class Training:
    """One model, from its first step on; all ranks make the same calls in the same order.

    ``shapes``: of the parameters, in many small buckets unless these are known to hang.
    ``probed``: every bucket of every step, which says what is wrong.  ``options``: DDP's.
    """

    def __init__(
        self,
        context: Context,
        shapes: Shapes = MANY,
        *,
        dtype: torch.dtype = torch.float32,
        probed: bool = True,
        **options: Any,
    ) -> None:
        self.context = context
        self.shapes = shapes
        self.dtype = dtype
        self.number = 0
        self.ledger = Ledger(lengths_of_shapes(shapes))
        self._random = random.Random(context.rank)
        self.tracer = Tracer(
            run_id="check",
            keep_buckets=8192,
            error_every=1 if probed else 8,
            error_all_buckets=probed,
            debug=probed,
            align_clocks=False,
        )
        context.tracers.append(self.tracer)
        cap = _ONE_BUCKET_MB if context.known.one_bucket else _CAP_MB
        self.ddp = DistributedDataParallel(
            KnownGradients(shapes, dtype), bucket_cap_mb=cap, **options
        )
        self.register(self.ddp)

    def register(self, ddp: DistributedDataParallel) -> None:
        """Register the hook, traced, with a new state; under another name where DDP refuses it."""
        hook, state = self.context.loaded.hook, self.context.new_state()
        options: dict[str, Any] = {"tracer": self.tracer, "local": self.context.loaded.local}
        try:
            instrument(ddp, hook, state, **options)
        except TypeError as error:
            if not refused_by_name(error):
                raise
            instrument(ddp, _Renamed(hook), state, **options)

    def ordinary(self, rank: int, step: int) -> list[torch.Tensor]:
        """Return a rank's ordinary gradients at a step."""
        return [value.to(self.dtype) for value in ordinary(self.shapes, rank, step)]

    def step(
        self,
        *makes: Make,
        longest_s: float = 0.0,
        active: int | None = None,
        phase: str = "ordinary",
    ) -> Step:
        """Train one step and return its gradients.

        ``makes``: of its backward passes, all but the last under ``no_sync``; by default one of
        ordinary gradients.  ``longest_s``: sleep up to that long in places of them.  ``active``:
        ranks that still train, the last ones; by default all.  ``phase``: what it is called.
        """
        makes = makes or (self.ordinary,)
        number = self.number
        self.number += 1
        self.ddp.zero_grad()
        for place, make in enumerate(makes, 1):
            pauses = [self._random.random() * longest_s for _ in self.shapes] if longest_s else ()
            with self.ddp.no_sync() if place < len(makes) else nullcontext():
                self.ddp(make(self.context.rank, number), pauses).backward()
        result = self._flat([parameter.grad for parameter in self.ddp.module.parts])
        gradients = self._gradients(makes, number, active or self.context.size)
        return self.ledger.step(number, result, gradients, phase)

    def _gradients(self, makes: Sequence[Make], number: int, active: int) -> torch.Tensor:
        """Return what each of the ``active`` ranks is given in all, and zeros of the others."""
        size = self.context.size
        numel = sum(lengths_of_shapes(self.shapes))
        rows = torch.zeros(size, numel, dtype=torch.float64)
        for rank in range(size - active, size):
            for make in makes:
                rows[rank] += self._flat(make(rank, number)).double()
        return rows

    def settle(self, *, longest_s: float = 0.0) -> list[Step]:
        """Train until the tracer compares every bucket, then a few steps more; return all steps."""
        steps = []
        while self.number < _GIVE_UP:
            steps.append(self.step(longest_s=longest_s))
            # Also keeps ranks together whose hook does not, so that the probes can begin.
            probed = self.number > _FIRST_PROBE and any(b.error for b in self.tracer.buckets())
            if self.context.all_agree(probed):
                break
        steps += [self.step(longest_s=longest_s) for _ in range(3)]
        self.context.all_agree(True)
        return steps

    def judge(self, steps: Sequence[Step], *, compare_ranks: bool = True) -> None:
        """Put on record what is wrong with steps whose gradients were finite."""
        for step in steps:
            if not step.is_finite:
                what = f"step {step.number}: finite gradients gave {_bad(step.result)}"
                self.context.find("nonfinite_result", what)
                return
        if self.context.loaded.local or not steps:
            return
        if compare_ranks:
            self.judge_same(steps)
        if self.context.known.is_exact:
            self.judge_error(steps, self.context.known.error or 0.0)

    def judge_same(self, steps: Sequence[Step]) -> None:
        """Put on record where ranks have other results; waits for all of them."""
        if not self.context.same_everywhere(torch.stack([step.result for step in steps])):
            self.context.find("replicas_diverge", "the gradients are not the same on all ranks")

    def judge_error(self, steps: Sequence[Step], usual: float) -> None:
        """Put on record where a nearly lossless hook's error is far beyond its usual one."""
        enough = _ENOUGH if self.dtype is torch.float32 else _ENOUGH_16_BITS
        worst = max(steps, key=lambda step: step.unexplained)
        if worst.unexplained <= max(5 * usual, enough):
            return
        self.context.find(
            "wrong_gradients",
            f"step {worst.number}: the gradients are off by {worst.error:.2g} of the average's "
            f"norm (cosine {worst.cosine:.2g}), where {usual:.2g} is usual",
        )

    def ratio(self) -> float | None:
        """Return gradient bytes over wire bytes of the steps after the first few."""
        late = [bucket for bucket in self.tracer.buckets() if bucket.step >= _FIRST_PROBE]
        sizes = [(b.gradient_bytes, b.wire_bytes) for b in late if b.wire_bytes is not None]
        if not sizes:
            return None
        gradient, wire = map(sum, zip(*sizes, strict=True))
        return gradient / wire if wire else math.inf

    def _flat(self, values: Values) -> torch.Tensor:
        return torch.cat(
            [
                torch.zeros(math.prod(shape)) if value is None else value.detach().flatten().float()
                for shape, value in zip(self.shapes, values, strict=True)
            ]
        )


def lengths_of_shapes(shapes: Shapes) -> tuple[int, ...]:
    """Return the number of elements of each parameter."""
    return tuple(math.prod(shape) for shape in shapes)


def ordinary(shapes: Shapes, rank: int, step: int) -> list[torch.Tensor]:
    """Return a rank's gradients at a step, float32: the same numbers wherever this is called."""
    noise = torch.Generator().manual_seed(1 + step * 1009 + rank)
    draw = torch.rand(1, generator=torch.Generator().manual_seed(step))
    factor = 0.5 + 1.5 * float(draw)
    values = []
    for place, shape in enumerate(shapes):
        shared = product(shape, _SHARED + place)
        own = product(shape, _SHARED + 1000 * (rank + 1) + place)
        rest = torch.randn(shape, generator=noise)
        values.append((shared + own + _NOISE * rest) * (_SIZE * factor))
    return values


def product(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return a product of two vectors where the shape has two dimensions, else random numbers."""
    generator = torch.Generator().manual_seed(seed)
    if len(shape) != 2:
        return torch.randn(shape, generator=generator)
    rows = torch.randn(shape[0], 1, generator=generator)
    return rows * torch.randn(1, shape[1], generator=generator)


class _Renamed:
    """A hook under a name that DDP has nothing against."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook
        self.__name__ = self.__qualname__ = f"{getattr(hook, '__name__', 'hook')}_renamed"

    def __call__(self, state: Any, bucket: Any) -> Any:
        """Run the hook."""
        return self._hook(state, bucket)


def refused_by_name(error: BaseException) -> bool:
    """Return whether DDP refused a hook for its ``__name__`` alone.

    It takes no ``bf16_compress_hook`` where there is no NCCL, although gloo all-reduces bfloat16
    correctly.
    """
    return "BF16 all reduce communication hook" in str(error)


def _bad(tensor: torch.Tensor) -> str:
    count = int((~tensor.isfinite()).sum())
    what = "NaN" if tensor.isnan().any() else "inf"
    return f"{what} in {count} of {tensor.numel()} elements"
