"""What is tried by hand: what DDP alone has, and training with ``fully_shard``.

Registration, buckets in any order under delays, ``join`` and pickling make a run of their own
(``runs.py``), which the same oracles are asked of.
"""

from __future__ import annotations

import math
import pickle
import statistics
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from ...fsdp.hooks import ScatterHook
from ...fsdp.trace import trace
from ...tracing.trace import listed_hooks
from ...tracing.tracer import Tracer
from .calls import DdpCall, KnownGradients, refused_by_name
from .gradients import MANY, lengths_of_shapes, play
from .judge import Measured
from .oracles import ORDINARY
from .rank import Context
from .runs import Run, cosine, distance

_DELAY_S = 0.002
_FIRST_PROBE = 11
_GIVE_UP = 30
_UNWATCHED_STEPS = 20
_LITTLE = 0.5
_NOTHING_LEFT = 0.02
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
    if refusal is not None and refused_by_name(refusal):
        context.find(
            "registration",
            f"DDP refuses a hook of this name on gloo; it says: {refusal}",
            remedy="give it another __name__, under which it was checked, or use "
            "hooktrace.hooks.bf16_compress_hook",
        )
    elif refusal is not None:
        reason = f"{type(refusal).__name__}: {refusal}"
        context.find("needs_trace", f"DDP refuses the hook as it is ({reason})")


def _of_all(context: Context, **options: Any) -> tuple[Run, DdpCall]:
    """Return a run in which each rank has its own gradients, and its model."""
    run = Run("each", lengths_of_shapes(MANY), context.size, float(context.size))
    return run, DdpCall(context, MANY, **options)


def many_buckets(context: Context) -> None:
    """Train with delays: while the tracer probes every bucket, and then without it."""
    run, call = _of_all(context, probed=True, longest_s=_DELAY_S)
    while len(run.steps) < _GIVE_UP:
        play(run, call, (("ordinary", 1),))
        # Also keeps ranks together whose hook does not, so that the probes can begin.
        probed = len(run.steps) > _FIRST_PROBE and any(b.error for b in call.tracer.buckets())
        if context.all_agree(probed):
            break
    play(run, call, (("ordinary", 3),))
    context.all_agree(True)
    context.find_anomalies()
    ratio, buckets = _ratio(context, call), len(call.tracer.layouts()[-1].buckets)
    run.wire = call.wire()
    call.tracer.close()
    # Nothing keeps the ranks together now but the hook.
    play(run, call, (("ordinary", _UNWATCHED_STEPS),))
    context.result.note = f"{buckets} buckets, {len(run.steps)} steps"
    # In its first steps DDP has other buckets, and the hook may start plainly.
    run.steps = run.steps[len(run.steps) // 4 :]
    context.judge([run], ORDINARY)
    _measure(context, run, ratio)


def _ratio(context: Context, call: DdpCall) -> float | None:
    """Return gradient bytes over wire bytes of the steps after the first few."""
    late = [bucket for bucket in call.tracer.buckets() if bucket.step >= _FIRST_PROBE]
    sizes = [(b.gradient_bytes, b.wire_bytes) for b in late if b.wire_bytes is not None]
    gradient, wire = map(sum, zip(*sizes, strict=True)) if sizes else (0, 0)
    if wire:
        return gradient / wire
    # Torch's recorder does not see what gloo sends from one rank to another.
    return math.inf if sizes and context.loaded.local else None


def _measure(context: Context, run: Run, ratio: float | None) -> None:
    """Put on record how much is lost, of a step and of the sum of all, and whether it is much."""
    steps = [step for step in run.steps if step.is_finite]
    if not steps:
        return
    result = torch.stack([step.result for step in steps]).sum(0)
    average = torch.stack([step.average for step in steps]).sum(0)
    error = statistics.median(distance(step.result, step.average) for step in steps)
    context.result.measured = Measured(
        error=error, sum_error=distance(result, average), ratio=ratio
    )
    if context.loaded.local:
        return
    # Error feedback sends later what it left out, so what counts is the better of the two.
    of_steps = statistics.median(cosine(step.result, step.average) for step in steps)
    similar = max(of_steps, cosine(result, average))
    lost = f"the cosine is {similar:.2g} and the relative error of a step {error:.2g}"
    if abs(similar) < _NOTHING_LEFT:
        context.find(run.wrong, f"nothing of the average is in the result: {lost}")
    elif similar < _LITTLE:
        context.find("precision", f"little is left of the average: {lost}")


def join(context: Context) -> None:
    """Let the last rank go on for some steps after the others have run out of data."""
    run, call = _of_all(context)
    play(run, call, (("ordinary", 6),))
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
    run, call = _of_all(context)
    play(run, call, (("ordinary", 3),))
    copied: Any = None
    for what, value, remedy in (
        ("hook", context.loaded.hook, "define it at the top of a module"),
        ("state", context.new_state(), "leave out what belongs to a process"),
        ("model", call.ddp, "look at what the hook's state holds"),
    ):
        try:
            copied = pickle.loads(pickle.dumps(value))
        except Exception as error:
            context.find(
                "not_picklable",
                f"the {what} does not pickle; nor does a model that the hook is registered on "
                f"({type(error).__name__}: {error})",
                remedy=remedy,
            )
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
    context.find_anomalies()
    if not got.isfinite().all():
        what = "finite gradients of a sharded model became NaN or inf"
        context.find("nonfinite_result", what, remedy="look at casts, and at divisions by a range")
        return
    off, similar = distance(got, expected), cosine(got, expected)
    context.result.note = f"gradients within {off:.2g} of FSDP's own"
    if context.fine is not False and (similar < _NEAR or off > _LITTLE):
        context.find(
            "wrong_gradients",
            f"a sharded model's gradients are {off:.2g} of their norm away from FSDP's own "
            f"(cosine {similar:.2g}), though single calls are right",
            remedy="look for memory of FSDP's that the hook keeps, or writes to after it returned",
        )


def _gradients(context: Context, *, traced: bool) -> torch.Tensor:
    """Return this rank's gradients of all steps, float64, with and without the hook."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layers = [nn.Linear(_WIDTH, _WIDTH) for _ in range(3)]
    model: Any = nn.Sequential(*layers)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in (*layers, model):
        fully_shard(module, mesh=mesh)
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
    if traced:
        context.tracers[-1].flush()
    return torch.cat(found)
