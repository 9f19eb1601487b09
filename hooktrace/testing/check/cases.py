"""The cases: each is run by every rank, in processes of its own, and puts problems on record.

They come in this order.  The first ordinary one, ``many buckets``, says how much a hook loses; the
others take that as usual.  Values that are not ordinary are in ``odd_values.py``.
"""

from __future__ import annotations

import pickle
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from .context import Context, Known
from .gradients import KnownGradients, Values
from .odd_values import huge, nan, zeros
from .results import Measured
from .training import MANY, Shapes, Step, Training, refused_by_name

_DELAY_S = 0.002
_UNWATCHED_STEPS = 20
_LITTLE = 0.5
_NOTHING = 0.02
_ODD = ((1,), (13, 7), (101,), (0,), (1009,), (3, 1, 5), (2,), (31, 37))
"""Shapes: 1 element, prime lengths, an empty parameter."""


class Case(NamedTuple):
    """One thing to try.  ``key``: on the command line."""

    key: str
    name: str
    run: Callable[[Context], None]


def registration(context: Context) -> None:
    """Ask DDP itself, without ``trace``, and then with it."""
    hook = context.loaded.hook
    ddp = DistributedDataParallel(KnownGradients(MANY, torch.float32))
    refusal = _refusal(lambda: ddp.register_comm_hook(context.new_state(), hook))
    try:
        Training(context)
    except (TypeError, ValueError) as error:
        context.find("registration", f"{error}", remedy="")
        context.result.stop = True
        return
    if refusal is None:
        return
    if refused_by_name(refusal):
        context.find(
            "registration",
            f"DDP refuses a hook of this name on gloo; it says: {refusal}",
            remedy="give it another __name__, under which it was checked, or use "
            "hooktrace.hooks.bf16_compress_hook",
        )
        return
    reason = f"{type(refusal).__name__}: {refusal}"
    context.find("needs_trace", f"DDP refuses the hook as it is ({reason})")


def many_buckets(context: Context) -> None:
    """Train with delays: while the tracer watches, and then without it."""
    training = Training(context)
    steps = training.settle(longest_s=_DELAY_S)
    context.find_anomalies()
    ratio = training.ratio()
    training.tracer.close()
    # Nothing keeps the ranks together now but the hook.
    steps += [training.step(longest_s=_DELAY_S) for _ in range(_UNWATCHED_STEPS)]
    training.judge(steps)
    settled = [step for step in steps if step.is_finite][len(steps) // 4 :]
    if not settled:
        return
    error, total = statistics.median(step.error for step in settled), _sum_of(settled)
    context.result.measured = Measured(error=error, sum_error=total.error, ratio=ratio)
    context.result.note = (
        f"{len(training.tracer.layouts()[-1].buckets)} buckets, {len(steps)} steps"
    )
    if context.loaded.local:
        return
    # Error feedback sends later what it left out, so what counts is the better of the two.
    similar = max(statistics.median(step.cosine for step in settled), total.cosine)
    lost = f"the cosine is {similar:.2g} and the relative error of a step {error:.2g}"
    if abs(similar) < _NOTHING:
        context.find("wrong_gradients", f"nothing of the average is in the result: {lost}")
    elif similar < _LITTLE:
        context.find("precision", f"little is left of the average: {lost}")
    if Known(error=error).is_exact:
        training.judge_error(settled, error)


def _sum_of(steps: Sequence[Step]) -> Step:
    result = torch.stack([step.result for step in steps]).sum(0)
    return Step(steps[-1].number, result, torch.stack([s.reference for s in steps]).sum(0))


def ordinary_steps(context: Context, shapes: Shapes = MANY, **options: Any) -> None:
    """Train without anything odd but the parameters' ``shapes``, or their ``dtype``."""
    training = Training(context, shapes, **options)
    training.judge(training.settle())
    context.find_anomalies()


def no_sync(context: Context) -> None:
    """Accumulate the gradients of two backward passes, the first under ``no_sync``."""
    training = Training(context)
    steps = training.settle()
    for _ in range(4):
        number = training.number
        training.number += 2
        training.ddp.zero_grad()
        with training.ddp.no_sync():
            training.backward(training.ordinary, number)
        training.backward(lambda rank, n: training.ordinary(rank, n + 1), number)
        both = [training.ordinary, lambda rank, n: training.ordinary(rank, n + 1)]
        steps.append(Step(number, training.result(), training.reference(both, number)))
    training.judge(steps)
    context.find_anomalies()


def join(context: Context) -> None:
    """Let the last rank go on for some steps after the others have run out of data."""
    training = Training(context)
    training.judge(training.settle())
    is_last = context.rank == context.size - 1
    steps = []
    with training.ddp.join():
        for done in range(6 if is_last else 3):
            number = training.number
            training.number += 1
            training.ddp.zero_grad()
            training.backward(training.ordinary, number)
            active = context.size if done < 3 else 1
            reference = training.reference([training.ordinary], number, active)
            steps.append(Step(number, training.result(), reference))
    training.judge(steps, compare_ranks=False)
    context.find_anomalies()


def unused(context: Context) -> None:
    """Leave one parameter out on all ranks but the first, and one on all."""

    def some(rank: int, step: int) -> Values:
        values = training.ordinary(rank, step)
        values[3] = None
        if rank != 0:
            values[2] = None
        return values

    training = Training(context, find_unused_parameters=True)
    training.judge([training.step(some) for _ in range(6)])
    context.find_anomalies()


def pickling(context: Context) -> None:
    """Pickle the hook, its state, and the trained model; train the model's copy."""
    training = Training(context)
    training.judge([training.step() for _ in range(3)])
    if not (
        _pickles(context, "hook", context.loaded.hook, "define it at the top of a module")
        and _pickles(context, "state", context.new_state(), "leave out what belongs to a process")
    ):
        return
    copied = _pickles(context, "model", training.ddp, "look at what the hook's state holds")
    if not copied:
        return
    # torch pickles the hooks with the model, and registers none of them in the copy.
    copied._comm_hooks.clear()
    training.ddp = copied
    training.register(copied)
    training.judge([training.step() for _ in range(3)])
    context.find_anomalies()


def _pickles(context: Context, what: str, value: Any, remedy: str) -> Any:
    """Return a copy by pickle (True for None); ``None`` where there can be none, on record."""
    try:
        copy = pickle.loads(pickle.dumps(value))
    except Exception as error:
        context.find(
            "not_picklable",
            f"the {what} does not pickle; nor does a model that the hook is registered on "
            f"({type(error).__name__}: {error})",
            remedy=remedy,
        )
        return None
    return True if value is None else copy


def _refusal(register: Callable[[], None]) -> Exception | None:
    try:
        register()
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        return error
    return None


CASES = (
    Case("registration", "registration", registration),
    Case("many-buckets", "many buckets, delays", many_buckets),
    Case("odd-sizes", "odd sizes", partial(ordinary_steps, shapes=_ODD)),
    Case("float16", "float16", partial(ordinary_steps, dtype=torch.float16)),
    Case("bfloat16", "bfloat16", partial(ordinary_steps, dtype=torch.bfloat16)),
    Case("zeros", "zero gradients", zeros),
    Case("huge", "huge gradients", huge),
    Case("nan", "NaN on one rank", nan),
    Case("no-sync", "no_sync", no_sync),
    Case("join", "join", join),
    Case("unused", "unused parameters", unused),
    Case("pickling", "pickling", pickling),
)
