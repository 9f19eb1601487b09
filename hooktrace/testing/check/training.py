"""A DDP model with the hook, traced, whose gradients are known in advance.

    step() --> forward, backward --> Step(result, reference)        what DDP gave, what was due
    settle() --> steps until the tracer probes each of them         so that it can name wrong sums
    judge(steps) --> problems: not finite, not the same on all ranks, far from the average

DDP takes no hook called ``bf16_compress_hook`` where there is no NCCL, although gloo all-reduces
bfloat16 correctly; such hooks are trained under another name.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ...probes.compare import measure, numbers
from ...records import BucketRecord, ErrorRecord
from ...tracing.trace import instrument
from ...tracing.tracer import Tracer
from .context import Context
from .gradients import KnownGradients, Values, ordinary

MANY = tuple(shape for _ in range(8) for shape in ((48, 48), (48,)))
"""The shapes of eight linear layers, a bucket each."""

_CAP_MB = 0.008
_ONE_BUCKET_MB = 25.0
_FIRST_PROBE = 11
_GIVE_UP = 30
_ENOUGH = 1e-3
_ENOUGH_16_BITS = 2e-2

Shapes = Sequence[tuple[int, ...]]
Make = Callable[[int, int], Values]
"""``(rank, step)`` to the gradients of that rank at that step."""


@dataclass(frozen=True, slots=True)
class Step:
    """All gradients of one step, flat: as DDP left them, and the average over the ranks."""

    number: int
    result: torch.Tensor
    reference: torch.Tensor

    @property
    def is_finite(self) -> bool:
        """Whether the result is."""
        return bool(self.result.isfinite().all())

    @property
    def error(self) -> float:
        """Relative L2 error, as probes measure it; inf where NaN or inf make it meaningless."""
        found = self._numbers().relative_l2
        return math.inf if found is None else found

    @property
    def cosine(self) -> float:
        """Cosine similarity, as probes measure it."""
        return self._numbers().cosine or 0.0

    def _numbers(self) -> ErrorRecord:
        numel = self.result.numel()
        return numbers(measure(self.result, self.reference, [numel]).tolist(), numel)


class Training:
    """One model, from its first step on; all ranks make the same calls in the same order.

    ``shapes``: of the parameters.  ``many``: with many small buckets, unless these are known to
    hang.  ``options``: DDP's.
    """

    def __init__(
        self,
        context: Context,
        shapes: Shapes = MANY,
        *,
        dtype: torch.dtype = torch.float32,
        many: bool = True,
        **options: Any,
    ) -> None:
        self.context = context
        self.shapes = [tuple(shape) for shape in shapes]
        self.dtype = dtype
        self.number = 0
        self._random = random.Random(context.rank)
        self.tracer = Tracer(
            run_id="check",
            keep_buckets=8192,
            error_every=1,
            error_all_buckets=True,
            debug=True,
            align_clocks=False,
        )
        cap = _CAP_MB if many and not context.known.one_bucket else _ONE_BUCKET_MB
        self.ddp = DistributedDataParallel(
            KnownGradients(shapes, dtype), bucket_cap_mb=cap, **options
        )
        context.tracers.append(self.tracer)
        self.register(self.ddp)

    def register(self, ddp: DistributedDataParallel) -> None:
        """Register the hook, traced, with a new state; under another name where DDP refuses it."""
        state = self.context.new_state()
        options: dict[str, Any] = {"tracer": self.tracer, "local": self.context.loaded.local}
        try:
            instrument(ddp, self.context.loaded.hook, state, **options)
        except TypeError as error:
            if not refused_by_name(error):
                raise
            instrument(ddp, _Renamed(self.context.loaded.hook), state, **options)

    def ordinary(self, rank: int, step: int) -> Values:
        """Return a rank's ordinary gradients at a step."""
        return [value.to(self.dtype) for value in ordinary(self.shapes, rank, step)]

    def reference(
        self, makes: Sequence[Make], number: int, ranks: int | None = None
    ) -> torch.Tensor:
        """Return the average of the sums of what all ranks, or the last ``ranks``, are given."""
        size = self.context.size
        total = torch.zeros(sum(math.prod(shape) for shape in self.shapes), dtype=torch.float64)
        for rank in range(size - (size if ranks is None else ranks), size):
            for make in makes:
                total += self._flat(make(rank, number)).double()
        return (total / size).float()

    def backward(self, make: Make, number: int, *, longest_s: float = 0.0) -> None:
        """Run one forward and backward pass.  ``longest_s``: sleep up to that long in places."""
        pauses = [self._random.random() * longest_s for _ in self.shapes] if longest_s else ()
        loss = self.ddp(make(self.context.rank, number), pauses)
        loss.backward()

    def step(self, make: Make | None = None, *, longest_s: float = 0.0) -> Step:
        """Train one step and return its gradients."""
        make = make or self.ordinary
        number = self.number
        self.number += 1
        self.ddp.zero_grad()
        self.backward(make, number, longest_s=longest_s)
        return Step(number, self.result(), self.reference([make], number))

    def result(self) -> torch.Tensor:
        """Return all gradients as they are, flat, as float32."""
        return self._flat([p.grad for p in self.ddp.module.parts])

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
                self.context.find(
                    "nonfinite_result",
                    f"step {step.number}: finite gradients gave {_bad(step.result)}",
                )
                return
        if self.context.loaded.local or not steps:
            return
        results = torch.stack([step.result for step in steps])
        if compare_ranks and not self.context.same_everywhere(results):
            self.context.find("replicas_diverge", "the gradients are not the same on all ranks")
        if self.context.known.is_exact:
            self.judge_error(steps, self.context.known.error or 0.0)

    def judge_error(self, steps: Sequence[Step], usual: float) -> None:
        """Put on record where a nearly lossless hook's error is far beyond its usual one."""
        enough = _ENOUGH if self.dtype is torch.float32 else _ENOUGH_16_BITS
        worst = max(steps, key=lambda step: step.error)
        if worst.error <= max(5 * usual, enough):
            return
        kind = "precision" if worst.cosine > 0.9 else "wrong_gradients"
        self.context.find(
            kind,
            f"step {worst.number}: the gradients are off by {worst.error:.2g} of the average's "
            f"norm (cosine {worst.cosine:.2g}), where {usual:.2g} is usual",
        )

    def ratio(self) -> float | None:
        """Return gradient bytes over wire bytes of the steps after the first few."""
        known = [b for b in self.tracer.buckets() if _counts(b)]
        wire = sum(b.wire_bytes or 0 for b in known)
        if not known:
            return None
        return sum(b.gradient_bytes for b in known) / wire if wire else math.inf

    def _flat(self, values: Values) -> torch.Tensor:
        return torch.cat(
            [
                torch.zeros(math.prod(shape)) if value is None else value.detach().flatten().float()
                for shape, value in zip(self.shapes, values, strict=True)
            ]
        )


class _Renamed:
    """A hook under a name that DDP has nothing against."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook
        self.__name__ = self.__qualname__ = f"{getattr(hook, '__name__', 'hook')}_renamed"

    def __call__(self, state: Any, bucket: Any) -> Any:
        """Run the hook."""
        return self._hook(state, bucket)


def refused_by_name(error: BaseException) -> bool:
    """Return whether DDP refused a hook for its ``__name__``, as bf16 hooks on gloo."""
    return "BF16 all reduce communication hook" in str(error)


def _counts(bucket: BucketRecord) -> bool:
    return bucket.wire_bytes is not None and bucket.step >= _FIRST_PROBE


def _bad(tensor: torch.Tensor) -> str:
    count = int((~tensor.isfinite()).sum())
    what = "NaN" if tensor.isnan().any() else "inf"
    return f"{what} in {count} of {tensor.numel()} elements"
