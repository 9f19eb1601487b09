"""A hook of FSDP's collectives in FSDP itself: a small sharded model, with it and without.

fully_shard(model) --plain--------------> gradients of each step --+
fully_shard(model) --fsdp.trace, hook---> gradients of each step --+--> how alike they are
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from ...fsdp.hooks import ScatterHook
from ...fsdp.trace import trace
from ...tracing.tracer import Tracer
from .rank import Context
from .steps import cosine, distance

_WIDTH = 37
"""A prime, so that every unit is padded."""

_STEPS = 3
_NEAR = 0.9
_TOO_LONG = 0.5


def in_training(context: Context) -> None:
    """Train a sharded model for a few steps, and compare its gradients with FSDP's own."""
    expected = _gradients(context, traced=False)
    got = _gradients(context, traced=True)
    context.find_anomalies()
    if not all(one.isfinite().all() for one in got):
        context.find(
            "nonfinite_result",
            "finite gradients of a sharded model became NaN or inf",
            remedy="look at casts, and at divisions by a range",
        )
        return
    similar = min(cosine(one, due) for one, due in zip(got, expected, strict=True))
    off = max(distance(one, due) for one, due in zip(got, expected, strict=True))
    context.result.note = f"{_STEPS} steps, gradients within {off:.2g} of FSDP's own"
    if context.known.is_exact and (similar < _NEAR or off > _TOO_LONG):
        context.find(
            "wrong_gradients",
            f"a sharded model's gradients are {off:.2g} of their norm away from FSDP's own "
            f"(cosine {similar:.2g}), though single calls are right",
            remedy="look for memory of FSDP's that the hook keeps, or writes to after it returned",
        )


def _gradients(context: Context, *, traced: bool) -> list[torch.Tensor]:
    """Return this rank's gradients of each step, float64, with and without the hook."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layers = [nn.Linear(_WIDTH, _WIDTH) for _ in range(3)]
    model: Any = nn.Sequential(*layers)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if traced:
        hook = context.loaded.hook
        takes_place_of = "reduce_scatter" if isinstance(hook, ScatterHook) else "all_gather"
        tracer = Tracer(run_id="check", error_every=0, channel=False)
        context.tracers.append(tracer)
        trace(model, tracer=tracer, **{takes_place_of: hook})
    numbers = torch.Generator().manual_seed(context.rank + 1)
    found = []
    for _ in range(_STEPS):
        model(torch.randn(8, _WIDTH, generator=numbers)).square().mean().backward()
        flat = [p.grad.to_local().flatten() for p in model.parameters()]
        found.append(torch.cat(flat).double())
        for parameter in model.parameters():
            parameter.grad = None
    if traced:
        context.tracers[-1].flush()
    return found
