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
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...fsdp.hooks import Gathering, Reduction, ScatterHook
from ...probes.wire import FlightRecorder, UnknownError
from ...records import Transfer
from ...staging.driver import Steps, run_synchronously
from ...staging.operations import Operation
from ...tracing.trace import instrument
from ...tracing.tracer import Tracer
from .gradients import Shapes, lengths_of_shapes
from .rank import Context
from .wire_format import NOT_KNOWN, WireFormat, format_of

_CAP_MB = 0.008
_ONE_BUCKET_MB = 25.0
_REBUILT = 2
"""DDP's first steps have buckets of their own."""


class KnownGradients(nn.Module):
    """Parameters of given shapes whose gradients are what ``forward`` is given."""

    def __init__(self, shapes: Shapes, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.parts = nn.ParameterList(
            torch.randn(shape, generator=generator).to(dtype) for shape in shapes
        )

    def forward(
        self, values: Sequence[torch.Tensor | None], pauses: Sequence[float] = ()
    ) -> torch.Tensor:
        """Return the loss.

        ``values``: a gradient a parameter, ``None`` for one that is not used.  ``pauses``: seconds
        to sleep in backward before each gradient.
        """
        terms = []
        for i, (parameter, value) in enumerate(zip(self.parts, values, strict=True)):
            if value is None:
                continue
            used = parameter.view_as(parameter)
            if pauses:
                used.register_hook(lambda gradient, seconds=pauses[i]: time.sleep(seconds))
            terms.append((used * value.view_as(parameter)).sum())
        return torch.stack(terms).sum()


class DdpCall:
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
        self.shapes = shapes
        self._context, self._passes, self._longest_s = context, passes, longest_s
        self._uses_all = not options.get("find_unused_parameters")
        self._random = random.Random(context.rank)
        self._began_ns: list[int] = []
        self._tracer = Tracer(run_id="check", keep_buckets=8192, error_every=0, align_clocks=False)
        context.tracers.append(self._tracer)
        cap = _ONE_BUCKET_MB if context.one_bucket else _CAP_MB
        self.ddp = DistributedDataParallel(
            KnownGradients(shapes, dtype), bucket_cap_mb=cap, **options
        )
        self.register(self.ddp)

    def register(self, ddp: DistributedDataParallel) -> None:
        """Register the hook, traced, with a new state."""
        loaded = self._context.loaded
        state = self._context.new_state()
        instrument(ddp, loaded.hook, state, tracer=self._tracer, local=loaded.local)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Train one step and return its gradients."""
        lengths = lengths_of_shapes(self.shapes)
        self._began_ns.append(time.time_ns())
        self.ddp.zero_grad()
        parts = (rows[self._context.rank] / self._passes).split(lengths)
        given = [part if self._uses_all or part.any() else None for part in parts]
        for place in range(self._passes):
            pauses = [self._random.random() * self._longest_s for _ in given if self._longest_s]
            with nullcontext() if place == self._passes - 1 else self.ddp.no_sync():
                self.ddp(given, pauses).backward()
        found = [parameter.grad for parameter in self.ddp.module.parts]
        return torch.cat(
            [
                torch.zeros(length) if value is None else value.detach().flatten().float()
                for length, value in zip(lengths, found, strict=True)
            ]
        )

    def given_for(self, rows: torch.Tensor) -> torch.Tensor:
        """Return all of it: every rank has all gradients."""
        return rows

    def wire(self, first: int = 0) -> WireFormat:
        """Return what went over the wire since a step, and since DDP has its buckets."""
        first = max(first, _REBUILT)
        numel = (len(self._began_ns) - first) * sum(lengths_of_shapes(self.shapes))
        return wire_of(self._tracer, first, self._began_ns[first], numel, self._context.size)


def wire_of(tracer: Tracer, first: int, from_ns: int, numel: int, ranks: int) -> WireFormat:
    """Return what was sent since a step, which began at ``from_ns``, for ``numel`` elements.

    Torch's recorder knows; if not, the tracer does of staged hooks.
    """
    try:
        issued = FlightRecorder().issued(from_ns, time.time_ns())
        transfers = [one.transfer for one in issued if one.transfer is not None]
        is_known = 0 < len(transfers) == len(issued)
    except UnknownError:
        is_known = False
    if not is_known:  # point to point is not in torch's recorder on gloo
        tracer.flush()
        late = [bucket for bucket in tracer.buckets() if bucket.step >= first]
        known = [bucket for bucket in late if bucket.wire_bytes is not None]
        transfers = [transfer for bucket in known for transfer in bucket.transfers]
        numel = sum(bucket.numel for bucket in known)
    return format_of(transfers, numel, ranks) if numel else NOT_KNOWN


class FsdpCall:
    """One of FSDP's collectives with the hook in its place.

    ``part``: elements of each rank's part.  ``divisor``: of the sum of reduced gradients.
    ``beside``: call it for another unit too after each step, with gradients 1000 times as large.
    """

    def __init__(
        self, context: Context, part: int, divisor: float, *, unit: str, beside: bool = False
    ) -> None:
        self._hook, self._rank, self._size = context.loaded.hook, context.rank, context.size
        self._part, self._divisor, self._unit, self._beside = part, divisor, unit, beside
        self.shapes: Shapes = ((part,),) * (
            self._size if isinstance(self._hook, ScatterHook) else 1
        )
        self._sent: list[list[Transfer]] = []

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of what is reduced, or all parameters that are gathered."""
        self._sent.append([])
        result = self._called(rows, self._unit, self._sent[-1])
        if self._beside:
            self._called(torch.rand_like(rows) + 1, f"beside {self._unit}", [])
        return result

    def _called(self, rows: torch.Tensor, unit: str, sent: list[Transfer]) -> torch.Tensor:
        group, hook = dist.group.WORLD, self._hook
        assert group is not None
        own = rows[self._rank].clone()
        asked: Reduction | Gathering
        if isinstance(hook, ScatterHook):
            result = own.new_empty(self._part)
            asked = Reduction(own, result, group, self._divisor, unit)
        else:
            result = own.new_full((self._size * self._part,), torch.nan)
            place = result.view(self._size, self._part)[self._rank]
            asked = Gathering(place.copy_(own), result, group, unit)
        steps = _watched(hook.steps(asked), sent)
        found = run_synchronously(hook.name, steps, hook, asked, None, result.numel())
        return result.copy_(found.flatten()).clone()

    def given_for(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what each rank gives for that, (ranks, numel)."""
        if isinstance(self._hook, ScatterHook):
            return rows.view(self._size, self._size, self._part)[:, self._rank]
        in_its_place: torch.Tensor = torch.block_diag(*rows.double())
        return in_its_place

    def wire(self, first: int = 0) -> WireFormat:
        """Return what was sent since a step for the elements that were given."""
        sent = [transfer for step in self._sent[first:] for transfer in step]
        numel = len(self._sent[first:]) * sum(lengths_of_shapes(self.shapes))
        return format_of(sent, numel, self._size)


def _watched(steps: Steps, sent: list[Transfer]) -> Generator[Operation, Any, torch.Tensor]:
    """Run a hook's generator, and take note of what its collectives send."""
    value: Any = None
    while True:
        try:
            operation = steps.send(value)
        except StopIteration as stop:
            result: torch.Tensor = stop.value
            return result
        known = operation.describe()
        if known is not None:
            dtype = str(known.dtype).removeprefix("torch.")
            sent.append(Transfer(collective=known.kind, dtype=dtype, wire_bytes=known.wire_bytes))
        value = yield operation
