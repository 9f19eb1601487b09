"""One call of a hook for all ranks' gradients, the same for DDP's hooks and for FSDP's collectives.

    rows (ranks, numel) --DdpCall: a model, forward, backward--> its gradients, (numel,)
                        --sharded_run: as FSDP calls it, flat-> this rank's part, or all parameters

Both return with the result what each rank gave for it, (ranks, numel), and what this rank sent.

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
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...fsdp.hooks import Gathering, Reduction, ScatterHook
from ...staging.driver import run_synchronously
from ...tracing.trace import instrument
from .gradients import MANY, Shapes, Who, lengths_of_shapes
from .runs import Run
from .wire import Heard, listening

if TYPE_CHECKING:
    from .rank import Context


class KnownGradients(nn.Module):
    """Parameters of given shapes whose gradients are what ``forward`` is given."""

    def __init__(self, shapes: Shapes, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ParameterList(torch.randn(shape).to(dtype) for shape in shapes)

    def forward(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the loss."""
        pairs = zip(self.parts, values, strict=True)
        return torch.stack([(p * g.view_as(p)).sum() for p, g in pairs]).sum()


class DdpCall:
    """A DDP model of many small buckets with the hook, traced; all ranks make the same calls.

    ``longest_s``: sleep up to that long before each gradient.
    """

    def __init__(
        self,
        context: Context,
        shapes: Shapes = MANY,
        dtype: torch.dtype = torch.float32,
        longest_s: float = 0.0,
    ) -> None:
        self._context, self._shapes, self._dtype = context, shapes, dtype
        model = KnownGradients(shapes, dtype)
        for parameter in model.parts if longest_s else ():
            parameter.register_hook(lambda gradient: time.sleep(random.random() * longest_s))
        self.ddp = DistributedDataParallel(model, bucket_cap_mb=0.008)
        self.register()

    def register(self) -> None:
        """Register the hook, traced, with a new state."""
        spec, tracer = self._context.hook, self._context.tracer
        state = spec.new_state(dist.group.WORLD)
        instrument(self.ddp, spec.hook, state, tracer=tracer, local=spec.local)

    def run(self, who: Who = "each") -> Run:
        """Return a run of the model."""
        size, lengths = self._context.size, lengths_of_shapes(self._shapes)
        return Run(self, who, self._shapes, lengths, size, float(size), self._dtype)

    def __call__(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Heard]:
        """Train one step; return its gradients, all ranks' own ones, and what this rank sent."""
        self.ddp.zero_grad()
        parts = rows[dist.get_rank()].split(lengths_of_shapes(self._shapes))
        loss = self.ddp(parts)
        sent: Heard = []
        with listening(sent):
            loss.backward()
        found = [parameter.grad.flatten().float() for parameter in self.ddp.module.parts]
        return torch.cat(found), rows, sent


def sharded_run(context: Context, part: int, divisor: float, who: Who, dtype: torch.dtype) -> Run:
    """Return a run of one of FSDP's collectives, of a unit of its own, with the hook in its place.

    ``part``: elements of each rank's part.  ``divisor``: of the sum of reduced gradients.
    """
    hook, rank, ranks, group = context.hook.hook, dist.get_rank(), context.size, dist.group.WORLD
    assert group is not None
    more = f", parts of {part}"
    unit = f"{who}{more}"
    memory: dict[int, torch.Tensor] = {}

    def call(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Heard]:
        own = rows[rank].clone()
        sent: Heard = []
        asked: Reduction | Gathering
        if isinstance(hook, ScatterHook):
            given, result = rows.view(ranks, ranks, part)[:, rank], own.new_empty(part)
            asked = Reduction(own, result, group, divisor, unit, memory)
        else:
            given, result = torch.block_diag(*rows), own.new_full((ranks * part,), torch.nan)
            own = result.view(ranks, part)[rank].copy_(own)
            asked = Gathering(own, result, group, unit)
        with listening(sent):
            found = run_synchronously(hook.name, hook.steps(asked), hook, asked, None, len(result))
        found = result.copy_(found.flatten()).clone()
        # FSDP uses the memory again: a hook must not keep it.
        own.fill_(torch.nan)
        result.fill_(torch.nan)
        return found, given, sent

    one, whole = (part,), (part,) * ranks
    if isinstance(hook, ScatterHook):
        return Run(call, who, (one,) * ranks, one, ranks, divisor, dtype, more)
    return Run(call, who, (one,), whole, ranks, 1.0, dtype, more, "wrong_parameters")
