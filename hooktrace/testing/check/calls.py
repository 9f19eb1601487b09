"""One call of a hook for all ranks' gradients, the same for DDP's hooks and for FSDP's collectives.

    rows (ranks, numel) --DdpCall: a model, forward, backward--> its gradients, (numel,)
                        --FsdpCall: as FSDP calls it, flat----> this rank's part, or all parameters

**DDP.**  The model's loss is the sum of p * g over all parameters p, whose gradient by p is g, on
all ranks and for every dtype, NaN included.  So the average is known everywhere without any
communication.

**FSDP.**  A ``ScatterHook`` should give the sum of what all ranks have for this rank's part, over
the divisor that is asked for; a ``GatherHook`` each rank's parameters in that rank's place, which
is the sum of rows that are zero elsewhere.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...fsdp.hooks import Gathering, Reduction, ScatterHook
from ...probes.wire import FlightRecorder, UnknownError
from ...staging.driver import run_synchronously
from ...tracing.trace import instrument
from ...tracing.tracer import Tracer
from .gradients import Phases, Shapes, gradients, lengths_of_shapes
from .rank import Context
from .runs import Run
from .wire_format import NOT_KNOWN, WireFormat, format_of

_CAP_MB = 0.008
_ONE_BUCKET_MB = 25.0
_REBUILT = 2
"""DDP's first steps have buckets of their own."""


class Call:
    """A hook, called for all gradients of a step: by DDP, as FSDP does, or in this process.

    ``shapes``: of what each rank gives.
    """

    def __init__(self, shapes: Shapes, ranks: int) -> None:
        self.shapes = shapes
        self.lengths = lengths_of_shapes(shapes)
        self.ranks = ranks
        self.began_ns: list[int] = []

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return this rank's result, (numel,), of all ranks' gradients, (ranks, their numel)."""
        raise NotImplementedError

    def given_for(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what each rank gives for this rank's result, (ranks, numel)."""
        return rows

    def wire(self, first: int = 0, tracer: Tracer | None = None) -> WireFormat:
        """Return what went over the wire since a step.

        Torch's recorder knows; if not, the tracer does of staged hooks.
        """
        numel = sum(self.lengths) * len(self.began_ns[first:])
        try:
            issued = FlightRecorder().issued(self.began_ns[first], time.time_ns())
            transfers = [one.transfer for one in issued if one.transfer is not None]
            is_known = 0 < len(transfers) == len(issued)
        except UnknownError:
            is_known = False
        if not is_known and tracer is not None:
            # Point to point is not in torch's recorder on gloo.
            tracer.flush()
            late = [bucket for bucket in tracer.buckets() if bucket.step >= first]
            known = [bucket for bucket in late if bucket.wire_bytes is not None]
            transfers = [transfer for bucket in known for transfer in bucket.transfers]
            numel = sum(bucket.numel for bucket in known)
            is_known = numel > 0
        return format_of(transfers, numel, self.ranks) if is_known else NOT_KNOWN


def play(run: Run, call: Call, phases: Phases) -> Run:
    """Call a hook with the gradients of all phases, and return the run with these steps."""
    for phase, count in phases:
        for _ in range(count):
            rows = gradients(phase, len(run.steps), call.shapes, run.ranks, run.who).to(run.dtype)
            run.add(phase, call(rows), call.given_for(rows))
    return run


class KnownGradients(nn.Module):
    """Parameters of given shapes whose gradients are what ``forward`` is given."""

    def __init__(self, shapes: Shapes, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ParameterList(torch.randn(shape).to(dtype) for shape in shapes)

    def forward(
        self, values: Sequence[torch.Tensor | None], longest_s: float = 0.0
    ) -> torch.Tensor:
        """Return the loss.

        ``values``: a gradient a parameter, ``None`` for one that is not used.  ``longest_s``: sleep
        up to that long in backward before each gradient.
        """
        terms = []
        for parameter, value in zip(self.parts, values, strict=True):
            if value is None:
                continue
            used = parameter.view_as(parameter)
            if longest_s:
                used.register_hook(lambda gradient: time.sleep(random.random() * longest_s))
            terms.append((used * value.view_as(parameter)).sum())
        return torch.stack(terms).sum()


class DdpCall(Call):
    """A DDP model with the hook, traced, from its first step on; all ranks make the same calls.

    In many small buckets, unless these are known to hang.  ``passes``: backward passes a step, all
    but the last under ``no_sync``.  ``longest_s``: sleep up to that long before each gradient.
    ``options``: DDP's; with ``find_unused_parameters`` it leaves out those without gradients.
    """

    def __init__(
        self,
        context: Context,
        shapes: Shapes,
        dtype: torch.dtype = torch.float32,
        *,
        passes: int = 1,
        longest_s: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(shapes, context.size)
        self._context, self._passes, self._longest_s = context, passes, longest_s
        self._uses_all = not options.get("find_unused_parameters")
        self._tracer = Tracer(run_id="check", keep_buckets=8192, error_every=0, align_clocks=False)
        context.tracers.append(self._tracer)
        cap = _ONE_BUCKET_MB if context.one_bucket else _CAP_MB
        model = KnownGradients(shapes, dtype)
        self.ddp = DistributedDataParallel(model, bucket_cap_mb=cap, **options)
        self.register(self.ddp)

    def register(self, ddp: DistributedDataParallel) -> None:
        """Register the hook, traced, with a new state."""
        spec, state = self._context.hook, self._context.new_state()
        instrument(ddp, spec.hook, state, tracer=self._tracer, local=spec.local)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Train one step and return its gradients."""
        self.began_ns.append(time.time_ns())
        self.ddp.zero_grad()
        parts = (rows[self._context.rank] / self._passes).split(self.lengths)
        given = [part if self._uses_all or part.any() else None for part in parts]
        for place in range(self._passes):
            with nullcontext() if place == self._passes - 1 else self.ddp.no_sync():
                self.ddp(given, self._longest_s).backward()
        found = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach()
            for parameter in self.ddp.module.parts
        ]
        return torch.cat([gradient.flatten().float() for gradient in found])

    def wire(self, first: int = 0, tracer: Tracer | None = None) -> WireFormat:
        """Return what went over the wire since a step, and since DDP has its buckets."""
        return super().wire(max(first, _REBUILT), tracer or self._tracer)


class FsdpCall(Call):
    """One of FSDP's collectives with the hook in its place.

    ``part``: elements of each rank's part.  ``divisor``: of the sum of reduced gradients.
    ``beside``: call it for another unit too after each step, with gradients 1000 times as large.
    """

    def __init__(
        self, context: Context, part: int, divisor: float, unit: str, *, beside: bool = False
    ) -> None:
        self._hook, self._rank = context.hook.hook, context.rank
        self._part, self._divisor, self._unit, self._beside = part, divisor, unit, beside
        self._scatters = isinstance(self._hook, ScatterHook)
        super().__init__(((part,),) * (context.size if self._scatters else 1), context.size)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of what is reduced, or all parameters that are gathered."""
        self.began_ns.append(time.time_ns())
        result = self._called(rows, self._unit)
        if self._beside:
            self._called(torch.rand_like(rows) + 1, f"beside {self._unit}")
        return result

    def _called(self, rows: torch.Tensor, unit: str) -> torch.Tensor:
        group, hook = dist.group.WORLD, self._hook
        assert group is not None
        own = rows[self._rank].clone()
        asked: Reduction | Gathering
        if self._scatters:
            result = own.new_empty(self._part)
            asked = Reduction(own, result, group, self._divisor, unit)
        else:
            result = own.new_full((self.ranks * self._part,), torch.nan)
            place = result.view(self.ranks, self._part)[self._rank]
            asked = Gathering(place.copy_(own), result, group, unit)
        found = run_synchronously(hook.name, hook.steps(asked), hook, asked, None, result.numel())
        found = result.copy_(found.flatten()).clone()
        # FSDP uses the memory again: a hook must not keep it.
        own.fill_(torch.nan)
        result.fill_(torch.nan)
        return found

    def given_for(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what each rank gives for that, (ranks, numel)."""
        if self._scatters:
            return rows.view(self.ranks, self.ranks, self._part)[:, self._rank]
        in_its_place: torch.Tensor = torch.block_diag(*rows.double())
        return in_its_place
