"""Scenarios with steps of their own: registration, ``join``, pickling, and ``fully_shard``."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from ...fsdp.hooks import ScatterHook
from ...fsdp.trace import trace
from ...tracing.hookless import listed_hooks
from ...tracing.tracer import Tracer
from .calls import DdpCall, KnownGradients
from .gradients import MANY, lengths_of_shapes, play
from .oracles import ORDINARY
from .rank import Context
from .runs import Run, cosine, distance

_LITTLE = 0.5
_NEAR = 0.9
_WIDTH = 37
"""Of a layer that is trained: a prime, so that every unit is padded."""


def registration(context: Context) -> None:
    """Ask DDP itself, without ``trace``, and then with it."""
    ddp = DistributedDataParallel(KnownGradients(MANY, torch.float32))
    refusal: Exception | None = None
    try:
        ddp.register_comm_hook(context.new_state(), context.loaded.hook)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        refusal = error
    try:
        DdpCall(context, MANY)
    except (TypeError, ValueError) as error:
        context.find("registration", f"{error}", remedy="")
        context.result.stop = True
        return
    if refusal is not None:
        reason = f"{type(refusal).__name__}: {refusal}"
        context.find("needs_trace", f"DDP refuses the hook as it is ({reason})")


def _begin(context: Context, steps: int) -> tuple[Run, DdpCall]:
    """Return a run of some ordinary steps, and what makes more of them."""
    run = Run("each", lengths_of_shapes(MANY), context.size, float(context.size))
    call = DdpCall(context, MANY)
    return play(run, call, (("ordinary", steps),)), call


def join(context: Context) -> None:
    """Let the last rank go on for some steps after the others have run out of data."""
    run, call = _begin(context, 6)
    run.wire = call.wire()
    with call.ddp.join():
        play(run, call, (("ordinary", 3),))
        alone = replace(run, steps=list(run.steps))
        if context.rank == context.size - 1:
            play(alone, call, (("joined", 3),))
    context.judge([run], ORDINARY)
    context.judge([alone], ORDINARY, of_this_rank=True)


def pickling(context: Context) -> None:
    """Pickle the hook, its state, and the trained model; train the model's copy."""
    run, call = _begin(context, 3)
    copied: Any = None
    for what, value, remedy in (
        ("hook", context.loaded.hook, "define it at the top of a module"),
        ("state", context.new_state(), "leave out what belongs to a process"),
        ("model", call.ddp, "look at what the hook's state holds"),
    ):
        try:
            copied = pickle.loads(pickle.dumps(value))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            both = "does not pickle; nor does a model that the hook is registered on"
            context.find("not_picklable", f"the {what} {both} ({reason})", remedy=remedy)
            return
    # The last copy is the model's; torch pickled the hooks with it, and registers none of them.
    listed_hooks(copied).clear()
    call.ddp = copied
    call.register(copied)
    play(run, call, (("ordinary", 3),))
    run.wire = call.wire()
    context.judge([run], ORDINARY)


def in_training(context: Context) -> None:
    """Train a sharded model for a few steps, and compare its gradients with FSDP's own."""
    expected = _gradients(context, traced=False)
    got = _gradients(context, traced=True)
    if not got.isfinite().all():
        what = "finite gradients of a sharded model became NaN or inf"
        context.find("nonfinite_result", what)
        return
    off, similar = distance(got, expected), cosine(got, expected)
    context.result.note = f"gradients within {off:.2g} of FSDP's own"
    if context.fine is not False and (similar < _NEAR or off > _LITTLE):
        context.find(
            "wrong_gradients",
            f"a sharded model's gradients are {off:.2g} of their norm away from FSDP's own (cosine "
            f"{similar:.2g}), though single calls are right: look for memory that the hook keeps",
        )


def _gradients(context: Context, *, traced: bool) -> torch.Tensor:
    """Return this rank's gradients of all steps, float64, with and without the hook."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layers = [nn.Linear(_WIDTH, _WIDTH) for _ in range(3)]
    model: Any = nn.Sequential(*layers)
    for module in (*layers, model):
        fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    if traced:
        hook = context.loaded.hook
        takes_place_of = "reduce_scatter" if isinstance(hook, ScatterHook) else "all_gather"
        tracer = Tracer(run_id="check", error_every=0, channel=False)
        context.tracers.append(tracer)
        trace(model, tracer=tracer, **{takes_place_of: hook})
    inputs = torch.Generator().manual_seed(context.rank + 1)
    found = []
    for _ in range(3):
        model(torch.randn(8, _WIDTH, generator=inputs)).square().mean().backward()
        found += [p.grad.to_local().flatten().double() for p in model.parameters()]
        model.zero_grad()
    return torch.cat(found)
