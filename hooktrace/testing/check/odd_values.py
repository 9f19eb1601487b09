"""The cases of gradients that are not ordinary: zeros, 1e5, NaN on one rank.

Each trains ordinary steps first, until the tracer watches every bucket and a hook that starts
plainly (PowerSGD's first steps) compresses; then the odd ones; then ordinary ones again, since what
a state keeps of an odd step shows only then.
"""

from __future__ import annotations

import torch

from .context import Context
from .gradients import Values
from .training import Step, Training

_HUGE = 1e5
_AFTER = 4
_FIRST_STEPS = 12
_NOT_FINITE = ("nonfinite_result", "nonfinite_average")
"""Kinds of anomalies that the cases themselves judge."""


def zeros(context: Context) -> None:
    """Train on gradients of zeros, as of a loss that is masked out: later on, and at first."""
    training = Training(context)
    training.judge(training.settle())
    _train_on_zeros(training, 3)
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
        if context.known.is_exact and not context.loaded.local and largest > 0.01:
            context.find("wrong_gradients", f"gradients of zeros gave up to {largest:.2g}")
            break
    _judge_what_follows(training, "gradients of zeros", "nonfinite_result")


def huge(context: Context) -> None:
    """Train on gradients of up to 1e5, which float32 averages without trouble."""
    training = Training(context)
    training.judge(training.settle())

    def large(rank: int, step: int) -> Values:
        values = training.ordinary(rank, step)
        return [None if v is None else v * (_HUGE / v.abs().max()) for v in values]

    steps = [training.step(large) for _ in range(2)]
    bad = [step for step in steps if not step.is_finite]
    if bad:
        what = "gradients of up to 1e5 gave NaN or inf; their average is finite"
        context.find("overflow", f"{what}, and float16 ends at 65504")
    else:
        training.judge(steps)
    _judge_what_follows(training, "gradients of 1e5", "nan_stays_in_state")
    # A NaN that the hook made of them was reported above, and its bits may differ between ranks.
    context.find_anomalies([*_NOT_FINITE, *(["replicas_diverge"] if bad else [])])


def nan(context: Context) -> None:
    """Put one NaN into the gradients of the last rank."""
    training = Training(context)
    training.judge(training.settle())

    def broken(rank: int, step: int) -> Values:
        values = training.ordinary(rank, step)
        if rank == context.size - 1:
            assert values[0] is not None
            values[0].view(-1)[0] = float("nan")
        return values

    step = training.step(broken)
    _judge_nan(context, step)
    _judge_what_follows(training, "a NaN", "nan_stays_in_state")
    context.find_anomalies(["nonfinite_gradient", *_NOT_FINITE, "replicas_diverge"])


def _judge_nan(context: Context, step: Step) -> None:
    if context.loaded.local:
        return
    finite = step.result.isfinite()
    if not context.same_everywhere(finite.float()):
        what = "a NaN of one rank is not in the same places on all ranks"
        context.find("replicas_diverge", what, remedy="send it to all")
    elif finite.all():
        what = "a NaN went in on one rank and finite gradients came out on all"
        context.find("nan_hidden", f"{what}: neither a loss scaler nor the loss will show it")


def _judge_what_follows(training: Training, after: str, kind: str) -> None:
    """Judge ordinary steps after odd ones; ``kind``: of the problem where they are not finite."""
    context = training.context
    steps = [training.step() for _ in range(_AFTER)]
    if all(step.is_finite for step in steps):
        # The first may still carry what error feedback kept.
        training.judge(steps[1:])
    else:
        what = f"{_AFTER} ordinary steps after {after} the gradients still have NaN or inf"
        context.find(kind, what, remedy="keep it out of the hook's state")
