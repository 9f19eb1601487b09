"""Variants of a hook side by side: they take turns, step by step, on one model.

    hooks --in turns, step by step--> Cost of each step --> differences, ratios of a round

In a round each variant has one step.  All of them share one DDP model, whose hook calls the variant
whose turn it is: two models of the same layers differ by some µs a bucket.  A sample is the
difference or ratio of two variants in one round.  The drains sleep, and are called now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from ...exporters import Exporter
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .harness import Hook, in_turns, linear_stack

BUCKETS = 40
_WIDTH = 64
_BATCH = 8
_WARMUP_ROUNDS = 20
_ROUNDS_A_DRAIN = 8
_ASLEEP_S = 3600.0


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
    sides = {name: _Side(hook) for name, hook in {**hooks, **(untraced or {})}.items()}
    with ExitStack() as stack:
        for name, hook in hooks.items():
            tracer = stack.enter_context(
                Tracer(exporters(), error_every=0, align_clocks=False, interval_s=_ASLEEP_S)
            )
            sides[f"traced {name}"] = _Side(trace(hook, tracer=tracer), tracer)
        _train(list(sides.values()), _WARMUP_ROUNDS + rounds)
    return {name: side.costs[_WARMUP_ROUNDS:] for name, side in sides.items()}


def _train(sides: list[_Side], rounds: int) -> None:
    turn = SimpleNamespace(hook=None)
    model = linear_stack(_WIDTH, BUCKETS, _whose_turn_it_is, turn)
    data = torch.randn(_BATCH, _WIDTH)
    turns = in_turns([partial(side.step, turn, model, data) for side in sides])
    for count in range(1, rounds + 1):
        next(turns)
        if count % _ROUNDS_A_DRAIN == 0 or count == rounds:
            for side in sides:
                side.drain()


def _whose_turn_it_is(turn, bucket):  # type: ignore[no-untyped-def]
    """Run the hook whose turn it is; DDP refuses annotations that are strings."""
    return turn.hook(None, bucket)


class _Side:
    """One variant, and what its steps took."""

    def __init__(self, hook: Hook, tracer: Tracer | None = None) -> None:
        self.costs: list[Cost] = []
        self._hook = hook
        self._tracer = tracer
        self._drained = 0

    def step(self, turn: SimpleNamespace, model: Callable[..., Any], data: torch.Tensor) -> None:
        """Run a step of the model, whose hook is that of ``turn``."""
        turn.hook = self._hook
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
