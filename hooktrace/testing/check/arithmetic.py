"""The case ``arithmetic``: chosen gradients, whose results say whether a hook averages.

    phase          gradients                                    what shows in them
    settle         ordinary ones                                -
    rest           zeros, until error feedback is empty         -
    impulse        one step of large ones                       what arrives, what is left out
    rest after     zeros                                        whether that is paid back, how often
    fresh          nothing in common from step to step          an older step's results, weights
    small          1/256 of these, more on higher ranks         what depends on size
    same           the same ones again and again                random numbers, drift
    rest at last   zeros                                        whether what is owed grows
    alike          large ones, the same on all ranks            whether all ranks' parts are added

Fresh gradients are, for each matrix, products of two vectors that are drawn anew each step: one
that the ranks share and one of the rank's own, with some noise.  The first and the last element of
each parameter are the largest of all, with signs that the ranks share.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch

from ...probes.wire import FlightRecorder, UnknownError
from ...tracing.tracer import Tracer
from .rank import Context
from .series import Series, is_pointless
from .steps import Ledger, Step
from .training import MANY, Make, Shapes, Training, Values, lengths_of_shapes, ordinary, product
from .verdict import verdict
from .wire_format import WireFormat, format_of

_SIZE = 0.03
_NOISE = 0.2
_IMPULSE = 16.0
_SMALL = 1 / 256
_EMPTY = 1e-4
_SEED = 1 << 24
_SENT = ("fresh", "small")
"""Phases, one after the other, in which what is sent is looked up."""

_PHASES = (
    ("settle", 12),
    ("rest", 5),
    ("impulse", 1),
    ("rest after", 3),
    ("fresh", 8),
    ("small", 4),
    ("same", 16),
    ("rest at last", 6),
    ("alike", 4),
)


NOT_KNOWN: Final = WireFormat("less", "unknown", math.nan)
"""What is on the wire where neither torch nor hooktrace tells."""


def arithmetic(context: Context) -> None:
    """Train on chosen gradients and judge all results together."""
    training = Training(context, probed=False)
    spans: list[tuple[int, int]] = []

    def train(make: Make, phase: str) -> Step:
        began = time.time_ns()
        step = training.step(make, phase=phase)
        if phase in _SENT:
            spans.append((began, time.time_ns()))
        return step

    steps = chosen(MANY, training.ledger, train)
    if not context.loaded.local:
        training.judge_same(steps)
        series = Series(steps, wire_of(training.tracer, spans, context.size))
        if series.wire is NOT_KNOWN:
            context.result.note = "what it sends is unknown, so how much it may lose is not judged"
        if found := verdict(series):
            context.find(
                "wrong_gradients", found.what, remedy=found.remedy, only_warns=found.only_warns
            )
        elif is_pointless(series):
            context.find(
                "no_compression",
                f"it feeds back what it leaves out, and sends {series.wire.bits:.3g} bits an "
                "element all the same",
            )
    context.find_anomalies()


def chosen(shapes: Shapes, ledger: Ledger, train: Callable[[Make, str], Step]) -> list[Step]:
    """Return the steps of all phases.  ``train``: makes one, of given gradients."""
    steps: list[Step] = []
    for phase, count in _PHASES:
        make = partial(_values, shapes, phase)
        steps += [train(make, phase) for _ in range(count)]
        if phase == "rest" and steps[-1].wide.norm() <= _EMPTY * steps[0].wide.norm():
            ledger.clear()
    return steps


def wire_of(tracer: Tracer, spans: Sequence[tuple[int, int]], ranks: int) -> WireFormat:
    """Return what went over the wire.

    ``spans``: wall-clock ns of steps, one after another, in which torch's recorder is asked; where
    it does not know, the tracer's records of staged hooks do.
    """
    numel = len(spans) * sum(lengths_of_shapes(MANY))
    try:
        issued = FlightRecorder().issued(spans[0][0], spans[-1][1])
        transfers = [one.transfer for one in issued if one.transfer is not None]
        is_known = 0 < len(transfers) == len(issued)
    except UnknownError:
        is_known = False
    if not is_known:
        tracer.flush()
        known = [bucket for bucket in tracer.buckets() if bucket.wire_bytes is not None]
        transfers = [transfer for bucket in known for transfer in bucket.transfers]
        numel = sum(bucket.numel for bucket in known)
    if not transfers:  # point to point is not in torch's recorder on gloo
        return NOT_KNOWN
    return format_of(transfers, numel, ranks)


def _values(shapes: Shapes, phase: str, rank: int, step: int) -> Values:
    if phase == "settle":
        return ordinary(shapes, rank, step)
    if phase.startswith("rest"):
        return [torch.zeros(shape) for shape in shapes]
    if phase == "alike":
        return fresh(shapes, 0, 1, _IMPULSE)
    size = {"impulse": _IMPULSE, "small": _SMALL * (1 + rank / 2)}.get(phase, 1.0)
    return fresh(shapes, rank, 0 if phase == "same" else step, size)


def fresh(shapes: Shapes, rank: int, step: int, size: float = 1.0) -> list[torch.Tensor]:
    """Return a rank's gradients of a step, which have nothing in common with another step's."""
    noise = torch.Generator().manual_seed(_SEED + step * 1009 + rank)
    signs = torch.randn(2 * len(shapes), generator=torch.Generator().manual_seed(step)).sign()
    values = []
    for place, shape in enumerate(shapes):
        seed = _SEED + 1_000_000 * (step + 1) + 1000 * place
        value = product(shape, seed) + product(shape, seed + 1 + rank)
        values.append(value + _NOISE * torch.randn(shape, generator=noise))
    largest = max(value.abs().max() for value in values)
    for value, ends in zip(values, signs.view(-1, 2), strict=True):
        value.view(-1)[0], value.view(-1)[-1] = ends * largest
    return [value * (_SIZE * size) for value in values]
