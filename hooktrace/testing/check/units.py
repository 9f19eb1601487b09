"""The cases of hooks for FSDP's collectives: of reduce-scatters, and of all-gathers.

Each is run by every rank, in processes of its own, and puts problems on record.  All ranks make the
same calls before any of them judges, so that none waits for one that has found something.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ...fsdp.hooks import GatherHook, ScatterHook
from .cases import Case
from .rank import Context
from .results import Measured
from .steps import distance
from .unit_calls import Gathered, Make, Scattered, gather, numbers, ratio, scatter, wire_format
from .unit_causes import UnitFlaw, wrong_sum, wrong_whole
from .unit_training import in_training
from .wire_format import WireFormat

_PART = 2048
"""Elements of a part that are enough to tell formats and weights."""

_ODD = (1, 2, 3, 7, 511, 512, 513, 1025)
"""Parts of one element, and around the length of a channel."""

_DIVISORS = (None, 1.0, 2.5)
"""Of an average, a sum, and a set factor."""

_HUGE = 1e5
_STEPS = 16
_BETTER = 0.8
"""Of one step's error; what an addition in 16 bits rounds is not fed back."""
_SMALL = 1e-4
"""Gradients of one unit beside another's."""

Call = Scattered | Gathered


def _run(context: Context, part: int, make: Make, **options: Any) -> Call:
    """Call the hook, whichever collective it is for."""
    is_scatter = isinstance(context.loaded.hook, ScatterHook)
    call: Callable[..., Call] = scatter if is_scatter else gather
    return call(context, part, make, **options)


def _flaw(context: Context, call: Call, wire: WireFormat) -> UnitFlaw | None:
    if isinstance(call, Scattered):
        return wrong_sum(call, wire)
    return wrong_whole(call, wire, context.rank)


def _judge(context: Context, calls: Sequence[Call], wire: WireFormat | None = None) -> bool:
    """Put on record the first thing that is wrong, if anything is; return whether nothing is.

    ``wire``: by default what the first call has sent.
    """
    wire = wire_format(calls[0], context.size) if wire is None else wire
    found = next((flaw for call in calls if (flaw := _flaw(context, call, wire))), None)
    if found is not None:
        context.find(found.kind, found.what, remedy=found.remedy)
    if wire.kind == "less":
        context.result.note = "fewer values than elements are sent: how much is lost is not judged"
    return found is None


def _same_everywhere(context: Context, calls: Sequence[Call], is_right: bool) -> None:
    """Put on record where ranks have gathered other bits; all of them ask."""
    for call in calls:
        same = context.same_everywhere(call.result)
        if not same and is_right:
            context.find(
                "replicas_diverge",
                "the ranks have decoded different parameters, so that each computes with another "
                "model",
                remedy="decode the same bytes in the same way on all ranks, this rank's own too",
            )
            return


def ordinary(context: Context) -> None:
    """An average, a sum and a set factor; parameters; what is sent, and what it loses."""
    is_scatter = isinstance(context.loaded.hook, ScatterHook)
    divisors = _DIVISORS if is_scatter else (None,)
    calls = [
        _run(
            context,
            _PART,
            numbers(seed),
            unit=f"unit {seed}",
            **({"divisor": divisor} if is_scatter else {}),
        )
        for seed, divisor in enumerate(divisors)
    ]
    is_right = _judge(context, calls)
    if not is_scatter:
        _same_everywhere(context, calls, is_right)
    error = statistics.median(distance(call.result, call.expected) for call in calls)
    context.result.measured = Measured(error=error, ratio=ratio(calls[0]), unexplained=error)
    wire = wire_format(calls[0], context.size)
    context.result.note = context.result.note or f"{wire.bits:.3g} bits an element"


def sizes(context: Context) -> None:
    """Parts of one element, of prime lengths, and around a channel's."""
    calls = [
        _run(context, part, numbers(seed), unit=f"unit {seed}")
        for seed, part in enumerate((_PART, *_ODD))
    ]
    is_right = _judge(context, calls)
    if isinstance(context.loaded.hook, GatherHook):
        _same_everywhere(context, calls, is_right)


def of_dtype(context: Context, dtype: torch.dtype) -> None:
    """What FSDP communicates under a ``MixedPrecisionPolicy``."""
    calls = [
        _run(context, part, numbers(seed), dtype=dtype, unit=f"unit {seed}")
        for seed, part in enumerate((_PART, 513, 1))
    ]
    is_right = _judge(context, calls)
    if isinstance(context.loaded.hook, GatherHook):
        _same_everywhere(context, calls, is_right)


def zeros(context: Context) -> None:
    """Gradients of zeros, as of a loss that is masked out; parameters that begin with them."""
    calls = [_run(context, part, numbers(0, 0.0), unit=f"unit {part}") for part in (_PART, 1)]
    _judge(context, calls, wire_format(calls[0], context.size))


def huge(context: Context) -> None:
    """Numbers of up to 1e5, which float32 adds without trouble."""
    call = _run(context, _PART, numbers(0, _HUGE / 3), unit="unit")
    after = _run(context, _PART, numbers(1), unit="unit")
    if call.result.isfinite().all():
        _judge(context, [call])
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

        calls.append(_run(context, _PART, broken, unit="unit"))
    after = [_run(context, _PART, numbers(1), unit="unit") for _ in range(2)]
    for word, call in zip(("a NaN", "an inf"), calls, strict=True):
        if not call.expected.isfinite().all() and call.result.isfinite().all():
            what = f"{word} of one rank went in and finite numbers came out"
            context.find("nan_hidden", f"{what}: neither a loss scaler nor the loss will show it")
            break
    _judge_what_follows(context, after[-1], "a NaN and an inf")


def _judge_what_follows(context: Context, call: Call, after: str) -> None:
    if not call.result.isfinite().all():
        what = f"ordinary numbers after {after} still gave NaN or inf"
        context.find("nan_stays_in_state", what, remedy="keep it out of what the hook keeps")


def several_units(context: Context) -> None:
    """Two units in turn, one of large and one of small gradients: what is kept is each one's."""
    large = [scatter(context, _PART, numbers(0), unit="large")]
    small = []
    for _ in range(3):
        small.append(scatter(context, _PART, numbers(1, _SMALL), unit="small"))
        large.append(scatter(context, _PART, numbers(0), unit="large"))
    wire = wire_format(large[0], context.size)
    worst = max(distance(call.result, call.expected) for call in small)
    # What error feedback adds is as much as a step loses.
    if worst > 2 * wire.tolerance(small[0].columns, small[0].dtype):
        context.find(
            "wrong_gradients",
            f"a unit of small gradients is off by {worst:.2g} of their norm beside one of large "
            "gradients",
            remedy="keep what a unit has lost under its own name, reduction.unit",
        )


def feedback(context: Context) -> None:
    """The same gradients again and again: what error feedback keeps comes with later steps."""
    calls = [scatter(context, _PART, numbers(0), unit="unit") for _ in range(_STEPS)]
    hook, expected = context.loaded.hook, calls[0].expected
    assert isinstance(hook, ScatterHook)
    mean = torch.stack([call.result for call in calls]).mean(0)
    one, all_of_them = distance(calls[0].result, expected), distance(mean, expected)
    kept = hook.residual("unit")
    error = f"one step's relative error is {one:.2g}, that of {_STEPS} steps' mean"
    context.result.note = f"{error} {all_of_them:.2g}"
    if kept is not None and all_of_them > _BETTER * one > 0:
        context.find(
            "wrong_gradients",
            f"error feedback does not make up for what is lost: {error} {all_of_them:.2g}",
            remedy="add what was left out once: residual = input - sent, where input = gradient + "
            "residual",
        )


_SHARED = (
    Case("odd-sizes", "odd sizes", sizes),
    Case("float16", "float16", partial(of_dtype, dtype=torch.float16)),
    Case("bfloat16", "bfloat16", partial(of_dtype, dtype=torch.bfloat16)),
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
