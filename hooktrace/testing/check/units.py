"""The cases of hooks for FSDP's collectives: of reduce-scatters, and of all-gathers.

Each is run by every rank, in processes of its own, and puts problems on record.  All ranks make the
same calls before any of them judges, so that none waits for one that has found something.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from ...fsdp.hooks import ScatterHook
from ...fsdp.trace import trace
from ...tracing.tracer import Tracer
from .cases import Case
from .judge import Measured
from .rank import Context
from .steps import FEED_BACK, cosine, distance
from .unit_calls import Call, call, flaw_of, numbers

_PART = 2048
"""Elements of a part that are enough to tell formats and weights."""

_ODD = (_PART, 1, 2, 3, 7, 511, 512, 513, 1025)
"""Parts of one element, and around the length of a channel, after one that tells the format."""

_DIVISORS = (None, 1.0, 2.5)
"""Of an average, a sum, and a set factor."""

_HUGE = 1e5
_REPEATS = 16
_BETTER = 0.8
"""Of one step's error; what an addition in 16 bits rounds is not fed back."""
_SMALL = 1e-4
"""Gradients of one unit beside another's."""

_WIDTH = 37
"""Of a layer that is trained: a prime, so that every unit is padded."""

_STEPS = 3
_NEAR = 0.9
_TOO_LONG = 0.5


def _judge(context: Context, calls: Sequence[Call]) -> bool:
    """Put on record the first thing that is wrong, if anything is; return whether nothing is.

    By what the first call has sent.
    """
    wire = calls[0].wire
    flaws = (flaw_of(one, wire, context.rank) for one in calls)
    found = next((flaw for flaw in flaws if flaw is not None), None)
    if found is not None:
        context.find(found.kind, found.what, remedy=found.remedy)
    if wire.kind == "less":
        context.result.note = "fewer values than elements are sent: how much is lost is not judged"
    return found is None


def _judge_all(context: Context, calls: Sequence[Call]) -> None:
    """Judge calls, and put on record where ranks have gathered other bits; all of them ask."""
    is_right = _judge(context, calls)
    for one in calls:
        if one.divisor is None and not context.same_everywhere(one.result):
            if is_right:
                context.find(
                    "replicas_diverge",
                    "the ranks have decoded different parameters, so that each computes with "
                    "another model",
                    remedy="decode the same bytes in the same way on all ranks, this rank's own "
                    "too",
                )
            return


def ordinary(context: Context) -> None:
    """An average, a sum and a set factor; parameters; what is sent, and what it loses."""
    divisors = _DIVISORS if isinstance(context.loaded.hook, ScatterHook) else (None,)
    calls = [
        call(context, _PART, numbers(seed), unit=f"unit {seed}", divisor=divisor)
        for seed, divisor in enumerate(divisors)
    ]
    _judge_all(context, calls)
    error = statistics.median(distance(one.result, one.expected) for one in calls)
    context.result.measured = Measured(error=error, ratio=calls[0].ratio, unexplained=error)
    context.result.note = context.result.note or f"{calls[0].wire.bits:.3g} bits an element"


def sizes(context: Context, parts: Sequence[int], dtype: torch.dtype = torch.float32) -> None:
    """Parts of several lengths, in what FSDP communicates under a ``MixedPrecisionPolicy``."""
    calls = [
        call(context, part, numbers(seed), dtype=dtype, unit=f"unit {seed}")
        for seed, part in enumerate(parts)
    ]
    _judge_all(context, calls)


def zeros(context: Context) -> None:
    """Gradients of zeros, as of a loss that is masked out; parameters that begin with them."""
    _judge(context, [call(context, n, numbers(0, 0.0), unit=f"unit {n}") for n in (_PART, 1)])


def huge(context: Context) -> None:
    """Numbers of up to 1e5, which float32 adds without trouble."""
    large = call(context, _PART, numbers(0, _HUGE / 3))
    after = call(context, _PART, numbers(1))
    if large.result.isfinite().all():
        _judge(context, [large])
    else:
        what = "numbers of up to 1e5 gave NaN or inf; float32 holds what is due"
        context.find("overflow", f"{what}, and float16 ends at 65504")
    _judge_what_follows(context, after, "numbers of 1e5")


def not_finite(context: Context) -> None:
    """One NaN, and one inf, of the last rank, which are for rank 0's part."""
    calls = []
    for value in (torch.nan, torch.inf):

        def broken(rank: int, numel: int, value: float = value) -> torch.Tensor:
            made = numbers(0)(rank, numel)
            if rank == context.size - 1:
                made[1] = value
            return made

        calls.append(call(context, _PART, broken))
    after = [call(context, _PART, numbers(1)) for _ in range(2)]
    for word, one in zip(("a NaN", "an inf"), calls, strict=True):
        if not one.expected.isfinite().all() and one.result.isfinite().all():
            what = f"{word} of one rank went in and finite numbers came out"
            context.find("nan_hidden", f"{what}: neither a loss scaler nor the loss will show it")
            break
    _judge_what_follows(context, after[-1], "a NaN and an inf")


def _judge_what_follows(context: Context, one: Call, after: str) -> None:
    if not one.result.isfinite().all():
        what = f"ordinary numbers after {after} still gave NaN or inf"
        context.find("nan_stays_in_state", what, remedy="keep it out of what the hook keeps")


def several_units(context: Context) -> None:
    """Two units in turn, one of large and one of small gradients: what is kept is each one's."""
    wire = call(context, _PART, numbers(0), unit="large").wire
    small = []
    for _ in range(3):
        small.append(call(context, _PART, numbers(1, _SMALL), unit="small"))
        call(context, _PART, numbers(0), unit="large")
    worst = max(distance(one.result, one.expected) for one in small)
    # What error feedback adds is as much as a step loses.
    if worst > 2 * wire.tolerance(small[0].given, small[0].dtype):
        context.find(
            "wrong_gradients",
            f"a unit of small gradients is off by {worst:.2g} of their norm beside one of large "
            "gradients",
            remedy="keep what a unit has lost under its own name, reduction.unit",
        )


def feedback(context: Context) -> None:
    """The same gradients again and again: what error feedback keeps comes with later steps."""
    calls = [call(context, _PART, numbers(0)) for _ in range(_REPEATS)]
    hook, expected = context.loaded.hook, calls[0].expected
    mean = torch.stack([one.result for one in calls]).mean(0)
    first, all_of_them = distance(calls[0].result, expected), distance(mean, expected)
    error = f"one step's relative error is {first:.2g}, that of {_REPEATS} steps' mean"
    context.result.note = f"{error} {all_of_them:.2g}"
    if hook.residual("unit") is not None and all_of_them > _BETTER * first > 0:
        context.find(
            "wrong_gradients",
            f"error feedback does not make up for what is lost: {error} {all_of_them:.2g}",
            remedy=FEED_BACK,
        )


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
    for _ in range(_STEPS):
        model(torch.randn(8, _WIDTH, generator=inputs)).square().mean().backward()
        flat = [p.grad.to_local().flatten() for p in model.parameters()]
        found.append(torch.cat(flat).double())
        model.zero_grad()
    if traced:
        context.tracers[-1].flush()
    return found


_16_BITS = (_PART, 513, 1)

_SHARED = (
    Case("odd-sizes", "odd sizes", partial(sizes, parts=_ODD)),
    Case("float16", "float16", partial(sizes, parts=_16_BITS, dtype=torch.float16)),
    Case("bfloat16", "bfloat16", partial(sizes, parts=_16_BITS, dtype=torch.bfloat16)),
    Case("zeros", "zeros", zeros),
    Case("huge", "huge numbers", huge),
    Case("nan", "NaN and inf on one rank", not_finite),
)

_TRAINING = Case("training", "training with fully_shard", in_training)

SCATTER_CASES = (
    Case("sums", "averages, sums, set factors", ordinary),
    *_SHARED,
    Case("units", "several units", several_units),
    Case("feedback", "the same gradients again", feedback),
    _TRAINING,
)

GATHER_CASES = (Case("parameters", "parameters", ordinary), *_SHARED, _TRAINING)


def cases_of(hook: Any) -> tuple[Case, ...]:
    """Return the cases of a hook for one of FSDP's collectives."""
    return SCATTER_CASES if isinstance(hook, ScatterHook) else GATHER_CASES
