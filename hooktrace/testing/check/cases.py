"""The cases: each is run by every rank, in processes of its own, and puts problems on record.

They come in the order of ``CASES``.  The first that trains, ``many buckets``, says how much a hook
loses; the others take that as usual.

Those of odd values (zeros, 1e5, NaN on one rank) train ordinary steps first, until the tracer
watches every bucket and a hook that starts plainly (PowerSGD's first steps) compresses; then the
odd ones; then ordinary ones again, since what a state keeps of an odd step shows only then.
"""

from __future__ import annotations

import math
import pickle
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from ...tracing.trace import listed_hooks
from .arithmetic import arithmetic
from .judge import Measured
from .rank import Context, Known
from .steps import bounded
from .training import MANY, KnownGradients, Shapes, Training, Values, refused_by_name

_DELAY_S = 0.002
_UNWATCHED_STEPS = 20
_LITTLE = 0.5
_NOTHING = 0.02
_ODD = ((1,), (13, 7), (101,), (0,), (1009,), (3, 1, 5), (2,), (31, 37))
"""Shapes: 1 element, prime lengths, an empty parameter."""

_HUGE = 1e5
_AFTER = 4
_FIRST_STEPS = 12
_NOT_FINITE = ("nonfinite_result", "nonfinite_average")
"""Kinds of anomalies that the cases of odd values judge themselves."""


class Case(NamedTuple):
    """One thing to try.  ``key``: on the command line."""

    key: str
    name: str
    run: Callable[[Context], None]


def registration(context: Context) -> None:
    """Ask DDP itself, without ``trace``, and then with it."""
    ddp = DistributedDataParallel(KnownGradients(MANY, torch.float32))
    refusal: Exception | None = None
    try:
        ddp.register_comm_hook(context.new_state(), context.loaded.hook)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        refusal = error
    try:
        Training(context)
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


def many_buckets(context: Context) -> None:
    """Train with delays: while the tracer watches, and then without it."""
    training = Training(context)
    steps = training.settle(longest_s=_DELAY_S)
    context.find_anomalies()
    ratio = training.ratio()
    if ratio == math.inf and not context.loaded.local:
        ratio = None  # torch's recorder does not see what gloo sends from one rank to another
    training.tracer.close()
    # Nothing keeps the ranks together now but the hook.
    steps += [training.step(longest_s=_DELAY_S) for _ in range(_UNWATCHED_STEPS)]
    training.judge(steps)
    settled = [step for step in steps if step.is_finite][len(steps) // 4 :]
    if not settled:
        return
    total = replace(
        steps[-1],
        result=torch.stack([step.result for step in settled]).sum(0),
        gradients=torch.stack([step.average.float() for step in settled]).sum(0)[None].double(),
    )
    error = statistics.median(step.error for step in settled)
    unexplained = statistics.median(step.unexplained for step in settled)
    context.result.measured = Measured(
        error=error, sum_error=total.error, ratio=ratio, unexplained=unexplained
    )
    buckets = training.tracer.layouts()[-1].buckets
    context.result.note = f"{len(buckets)} buckets, {len(steps)} steps"
    if context.loaded.local:
        return
    # Error feedback sends later what it left out, so what counts is the better of the two.
    similar = max(statistics.median(step.cosine for step in settled), total.cosine)
    lost = f"the cosine is {similar:.2g} and the relative error of a step {error:.2g}"
    if abs(similar) < _NOTHING:
        context.find("wrong_gradients", f"nothing of the average is in the result: {lost}")
    elif similar < _LITTLE:
        context.find("precision", f"little is left of the average: {lost}")
    if Known(error=unexplained).is_exact:
        training.judge_error(settled, unexplained)


def ordinary_steps(context: Context, shapes: Shapes = MANY, **options: Any) -> None:
    """Train without anything odd but the parameters' ``shapes``, or their ``dtype``."""
    _settled(context, shapes, **options)
    context.find_anomalies()


def _settled(context: Context, shapes: Shapes = MANY, **options: Any) -> Training:
    training = Training(context, shapes, **options)
    training.judge(training.settle())
    return training


def zeros(context: Context) -> None:
    """Train on gradients of zeros, as of a loss that is masked out: later on, and at first."""
    _train_on_zeros(_settled(context), 3)
    context.find_anomalies()
    # Error feedback has nothing to hand on yet, so that zeros are all that is compressed.
    _train_on_zeros(Training(context), _FIRST_STEPS)


def _train_on_zeros(training: Training, steps: int) -> None:
    context = training.context

    def nothing(rank: int, step: int) -> Values:
        return [torch.zeros(shape) for shape in training.shapes]

    for step in [training.step(nothing) for _ in range(steps)]:
        if not step.is_finite:
            remedy = "look for a division by a norm or by a range that can be 0"
            context.find("nonfinite_result", "gradients of zeros gave NaN or inf", remedy=remedy)
            break
        largest = step.result.abs().max().item()
        if not context.known.is_exact or context.loaded.local:
            continue
        if largest > 0.01 and step.error_with_feedback > _LITTLE:
            context.find("wrong_gradients", f"gradients of zeros gave up to {largest:.2g}")
            break
    _judge_what_follows(training, "gradients of zeros", "nonfinite_result")


def huge(context: Context) -> None:
    """Train on gradients of up to 1e5, which float32 averages without trouble."""
    training = _settled(context)

    def large(rank: int, step: int) -> Values:
        return [v * (_HUGE / v.abs().max()) for v in training.ordinary(rank, step)]

    steps = [training.step(large) for _ in range(2)]
    is_finite = all(step.is_finite for step in steps)
    if is_finite:
        # Clipping by value is seen where gradients are ordinary, if it harms them.
        training.judge([step for step in steps if bounded(step) is None])
    else:
        what = "gradients of up to 1e5 gave NaN or inf; their average is finite"
        context.find("overflow", f"{what}, and float16 ends at 65504")
    _judge_what_follows(training, "gradients of 1e5", "nan_stays_in_state")
    # A NaN that the hook made of them was reported above, and its bits may differ between ranks.
    context.find_anomalies(_NOT_FINITE if is_finite else (*_NOT_FINITE, "replicas_diverge"))


def nan(context: Context) -> None:
    """Put one NaN into the gradients of the last rank."""
    training = _settled(context)

    def broken(rank: int, step: int) -> Values:
        values = training.ordinary(rank, step)
        if rank == context.size - 1:
            values[0].view(-1)[0] = float("nan")
        return values

    finite = training.step(broken).result.isfinite()
    if not context.loaded.local and not context.same_everywhere(finite.float()):
        what = "a NaN of one rank is not in the same places on all ranks"
        context.find("replicas_diverge", what, remedy="send it to all")
    elif not context.loaded.local and finite.all():
        what = "a NaN went in on one rank and finite gradients came out on all"
        context.find("nan_hidden", f"{what}: neither a loss scaler nor the loss will show it")
    _judge_what_follows(training, "a NaN", "nan_stays_in_state")
    context.find_anomalies(["nonfinite_gradient", *_NOT_FINITE, "replicas_diverge"])


def _judge_what_follows(training: Training, after: str, kind: str) -> None:
    """Judge ordinary steps after odd ones; ``kind``: of the problem where they are not finite."""
    steps = [training.step() for _ in range(_AFTER)]
    if all(step.is_finite for step in steps):
        # The first may still carry what error feedback kept.
        training.judge(steps[1:])
    else:
        what = f"{_AFTER} ordinary steps after {after} the gradients still have NaN or inf"
        training.context.find(kind, what, remedy="keep it out of the hook's state")


def no_sync(context: Context) -> None:
    """Accumulate the gradients of two backward passes, the first under ``no_sync``."""
    training = Training(context)
    steps = training.settle()

    def second(rank: int, step: int) -> Values:
        return training.ordinary(rank, step + 1)

    steps += [training.step(training.ordinary, second) for _ in range(4)]
    training.judge(steps)
    context.find_anomalies()


def join(context: Context) -> None:
    """Let the last rank go on for some steps after the others have run out of data."""
    training = _settled(context)
    is_last = context.rank == context.size - 1
    with training.ddp.join():
        steps = [
            training.step(active=context.size if done < 3 else 1)
            for done in range(6 if is_last else 3)
        ]
    training.judge(steps, compare_ranks=False)
    context.find_anomalies()


def unused(context: Context) -> None:
    """Leave one parameter out on all ranks but the first, and one on all."""

    def some(rank: int, step: int) -> Values:
        values: list[torch.Tensor | None] = [*training.ordinary(rank, step)]
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
    copied: Any = None
    for what, value, remedy in (
        ("hook", context.loaded.hook, "define it at the top of a module"),
        ("state", context.new_state(), "leave out what belongs to a process"),
        ("model", training.ddp, "look at what the hook's state holds"),
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
    training.ddp = copied
    training.register(copied)
    training.judge([training.step() for _ in range(3)])
    context.find_anomalies()


CASES = (
    Case("registration", "registration", registration),
    Case("many-buckets", "many buckets, delays", many_buckets),
    Case("arithmetic", "chosen gradients", arithmetic),
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
