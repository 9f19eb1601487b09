"""Variants of one training step side by side: they take turns, step by step, in one process.

    hooks --shuffled, step by step--> medians of a round --> Cost --> differences, ratios

In a round each variant has a few steps, in an order that is drawn anew each time, so that whatever
else the machine does falls on all of them.  A sample is the difference or ratio of two variants in
one round.  The drains sleep during the steps and are called at the round's end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

import torch

from ...exporters import Exporter
from ...tracing.traced_hook import trace
from ...tracing.tracer import Tracer
from .models import linear_stack

__all__ = ["BUCKETS", "Cost", "Costs", "added_us", "measure_sides", "ratios"]

BUCKETS = 40
_WIDTH = 64
_BATCH = 8
_STEPS = 8
_WARMUP_ROUNDS = 2
_ASLEEP_S = 3600.0

Hook = Callable[..., Any]


class Cost(NamedTuple):
    """What a step took in one round, in ns.

    ``wall``: forward and backward by the clock.  ``own``: processor time of the training thread in
    backward.  ``process``: processor time of all threads in forward and backward, and of the
    drain's work for the step.  All are medians of the round's steps, but the drain's part a mean.
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
    sides = [_Side(name, hook, None) for name, hook in {**hooks, **(untraced or {})}.items()]
    for name, hook in hooks.items():
        tracer = Tracer(exporters(), error_every=0, align_clocks=False, interval_s=_ASLEEP_S)
        sides.append(_Side(f"traced {name}", trace(hook, tracer=tracer), tracer))
    try:
        return _interleave(sides, rounds)
    finally:
        for side in sides:
            side.close()


def _interleave(sides: list[_Side], rounds: int) -> Costs:
    source = random.Random(0)  # the same order on all ranks
    costs: Costs = {side.name: [] for side in sides}
    for count in range(_WARMUP_ROUNDS + rounds):
        for _ in range(_STEPS):
            for side in source.sample(sides, len(sides)):
                side.step()
        for side in sides:
            cost = side.cost()
            if count >= _WARMUP_ROUNDS:
                costs[side.name].append(cost)
    return costs


class _Side:
    """One variant: its model, and what its steps took since the last ``cost()``."""

    def __init__(self, name: str, hook: Hook, tracer: Tracer | None) -> None:
        self.name = name
        self._tracer = tracer
        self._model = linear_stack(_WIDTH, BUCKETS, hook)
        self._data = torch.randn(_BATCH, _WIDTH)
        self._steps: list[tuple[int, int, int]] = []

    def step(self) -> None:
        """Run a step; the clocks of the calling thread are read inside those of all threads."""
        process = time.process_time_ns()
        wall = time.perf_counter_ns()
        loss = self._model(self._data).sum()
        own = time.thread_time_ns()
        loss.backward()
        own = time.thread_time_ns() - own
        wall = time.perf_counter_ns() - wall
        self._steps.append((wall, own, time.process_time_ns() - process))

    def cost(self) -> Cost:
        """Let the drain take what it has and return the steps' cost.

        Raises ``RuntimeError`` where DDP cut the model into other buckets, or records were lost.
        """
        process = time.process_time_ns()
        if self._tracer is not None:
            self._tracer.flush()
            process = time.process_time_ns() - process
            _check(self._tracer)
        else:
            process = 0
        steps, self._steps = self._steps, []
        wall, own, all_threads = (median(values) for values in zip(*steps, strict=True))
        return Cost(wall, own, all_threads + process / len(steps))

    def close(self) -> None:
        """Close the tracer."""
        if self._tracer is not None:
            self._tracer.close()


def _check(tracer: Tracer) -> None:
    settled = {len(layout.buckets) for layout in tracer.layouts() if layout.generation}
    if settled != {BUCKETS}:
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
