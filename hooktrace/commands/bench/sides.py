"""Variants of a hook side by side: they take turns, step by step, on one model.

    hooks --shuffled, step by step--> Cost of each step --> differences, ratios of a round

In a round each variant has one step, in an order that is drawn anew each time, so that whatever
else the machine does falls on all of them.  All of them share one DDP model, whose hook calls the
variant whose turn it is: two models of the same layers differ by some µs a bucket.  A sample is the
difference or ratio of two variants in one round.  The drains sleep, and are called now and then.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from ...exporters import Exporter
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .models import linear_stack

BUCKETS = 40
_WIDTH = 64
_BATCH = 8
_WARMUP_ROUNDS = 20
_ROUNDS_A_DRAIN = 8
_ASLEEP_S = 3600.0

Hook = Callable[..., Any]


class Cost(NamedTuple):
    """What one step took, in ns.

    ``wall``: forward and backward by the clock.  ``own``: processor time of the training thread in
    backward.  ``process``: processor time of all threads in forward and backward, and the step's
    share of what its tracer's drain does afterwards.
    """

    wall: float
    own: float
    process: float


Costs = dict[str, list[Cost]]
"""By variant, a cost for each round."""


def measure_sides(
    hooks: Mapping[str, Hook],
    rounds: int,
    *,
    untraced: Mapping[str, Hook] | None = None,
    exporters: Callable[[], list[Exporter]] = list,
) -> Costs:
    """Return what steps of 40 buckets of 16 KB cost with each hook, and with each hook traced.

    A variant is named as its hook, traced ``traced`` and the name.  ``untraced``: hooks that are
    not traced too.  Each traced hook has a tracer of its own with what ``exporters`` returns, and
    no probes: one would fall into few of the rounds, and has a row elsewhere.
    """
    sides = [_Side(name, hook) for name, hook in {**hooks, **(untraced or {})}.items()]
    for name, hook in hooks.items():
        tracer = Tracer(exporters(), error_every=0, align_clocks=False, interval_s=_ASLEEP_S)
        sides.append(_Side(f"traced {name}", trace(hook, tracer=tracer), tracer))
    try:
        _interleave(sides, _WARMUP_ROUNDS + rounds)
    finally:
        for side in sides:
            side.close()
    return {side.name: side.costs[_WARMUP_ROUNDS:] for side in sides}


def _interleave(sides: list[_Side], rounds: int) -> None:
    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses string annotations
        return turn.hook(state, bucket)

    model = linear_stack(_WIDTH, BUCKETS, hook)
    data = torch.randn(_BATCH, _WIDTH)
    source = random.Random(0)  # the same order on all ranks
    for count in range(1, rounds + 1):
        for turn in source.sample(sides, len(sides)):  # the hook reads it
            turn.step(model, data)
        if count % _ROUNDS_A_DRAIN == 0 or count == rounds:
            for side in sides:
                side.drain()


class _Side:
    """One variant, and what its steps took."""

    def __init__(self, name: str, hook: Hook, tracer: Tracer | None = None) -> None:
        self.name = name
        self.hook = hook
        self.costs: list[Cost] = []
        self._tracer = tracer
        self._drained = 0

    def step(self, model: Callable[..., Any], data: torch.Tensor) -> None:
        """Run a step of the model, whose hook must call this side's."""
        process = time.process_time_ns()
        wall = time.perf_counter_ns()
        loss = model(data).sum()
        own = time.thread_time_ns()
        loss.backward()
        own = time.thread_time_ns() - own
        wall = time.perf_counter_ns() - wall
        self.costs.append(Cost(wall, own, time.process_time_ns() - process))

    def drain(self) -> None:
        """Let the drain take what it has, and spread its processor time over the steps since.

        Raises ``RuntimeError`` where DDP cut the model into other buckets, or records were lost.
        """
        if self._tracer is None:
            return
        process = time.process_time_ns()
        self._tracer.flush()
        process = time.process_time_ns() - process
        _check(self._tracer)
        new = self.costs[self._drained :]
        self.costs[self._drained :] = [
            cost._replace(process=cost.process + process / len(new)) for cost in new
        ]
        self._drained = len(self.costs)

    def close(self) -> None:
        """Close the tracer."""
        if self._tracer is not None:
            self._tracer.close()


def _check(tracer: Tracer) -> None:
    settled = len(tracer.layouts()[-1].buckets)
    if settled != BUCKETS:
        raise RuntimeError(
            f"DDP made {settled} buckets where {BUCKETS} were meant; this version of torch "
            "cuts buckets in another way: adapt the model"
        )
    if tracer.losses():
        raise RuntimeError(f"the tracer lost records: {tracer.losses()}")


def added_us(costs: Costs, variant: str, base: str, kind: str) -> list[float]:
    """Return by how many µs a bucket ``variant`` is above ``base``; ``kind``: a field of Cost."""
    return [
        (getattr(more, kind) - getattr(less, kind)) / BUCKETS / 1e3
        for more, less in zip(costs[variant], costs[base], strict=True)
    ]


def ratios(costs: Costs, variant: str, base: str, kind: str) -> list[float]:
    """Return what ``variant`` takes over what ``base`` takes."""
    pairs = zip(costs[variant], costs[base], strict=True)
    return [getattr(more, kind) / getattr(less, kind) for more, less in pairs]
