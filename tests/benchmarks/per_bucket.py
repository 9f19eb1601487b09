"""What tracing adds per bucket to forward and backward, and to the training thread.

    hooks --in turns, step by step--> Cost of each step --> differences, ratios of a round

In a round each variant of a hook has one step.  All of them share one DDP model, whose hook calls
the variant whose turn it is: two models of the same layers differ by some µs a bucket.  A sample is
the difference or ratio of two variants in one round.  The drains sleep, and are called now and
then.

*Per bucket*, one rank, 40 buckets of 16 KB: the step waits for whatever the callback threads do
under the interpreter lock, so it is timed as a whole, by the clock; what the drain does afterwards
is not in it.  Beside it stand the *control*, the untraced hook against itself, whose spread is the
noise of the machine, and the *floor*, the least that a tracer written in Python adds: a frame
around the hook, two readings of the clock, and an append.

*Training thread*, two ranks, where callbacks run on gloo's threads as in a real job: the thread's
own processor time in backward: what it computes, waits left out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks

from hooktrace import hooks
from hooktrace.commands.bench.cost import _whose_turn_it_is
from hooktrace.commands.bench.harness import Hook, done, in_turns, linear_stack, run_ranks
from hooktrace.commands.bench.table import Row
from hooktrace.tracing.trace import trace
from hooktrace.tracing.tracer import Tracer

BUCKETS = 40
_WIDTH = 64
_BATCH = 8
_WARMUP_ROUNDS = 20
_ROUNDS_A_DRAIN = 8
_ASLEEP_S = 3600.0


class Cost(NamedTuple):
    """What one step took, in ns.

    ``wall``: forward and backward by the clock.  ``own``: processor time of the training thread in
    backward.
    """

    wall: int
    own: int


def per_bucket(*, quick: bool) -> Iterator[Row]:
    """Yield the rows by the clock."""
    (costs,) = run_ranks(1, _measure, 150 if quick else 600)
    for name in _BESIDE:
        yield Row(name, added_us(costs, name, "allreduce", "wall"), "µs/bucket")
    for name, (_, budget) in _TRACED.items():
        added = added_us(costs, f"traced {name}", name, "wall")
        yield Row(f"{name}, traced - untraced", added, "µs/bucket", budget=budget)


def training_thread(*, quick: bool) -> Iterator[Row]:
    """Yield the rows of a staged hook, and of torch's own."""
    ranks = run_ranks(2, _measure, 100 if quick else 500)
    for name, kind, budget in (("allreduce", "staged", 5.0), ("torch's allreduce", "plain", 10.0)):
        added = [a for costs in ranks for a in added_us(costs, f"traced {name}", name, "own")]
        what = f"allreduce, {kind}: traced - untraced"
        yield Row(what, added, "µs/bucket", budget=budget)
    shares = [
        ours.own / torchs.own
        for costs in ranks
        for ours, torchs in zip(costs["allreduce"], costs["torch's allreduce"], strict=True)
    ]
    what = "allreduce: untraced staged hook / torch's own"
    yield Row(what, shares, "ratio", budget=1.0)


_stamps: deque[tuple[int, int]] = deque(maxlen=16384)


def _stamped(state: Any, bucket: Any) -> Any:
    start = time.perf_counter_ns()
    future = hooks.allreduce_hook(state, bucket)
    _stamps.append((start, time.perf_counter_ns()))
    return future


def _instant(state: Any, bucket: Any) -> Any:
    return done(bucket.buffer())


_TRACED: dict[str, tuple[Hook, float]] = {
    "allreduce": (hooks.allreduce_hook, 6.0),
    "a hook done at once": (_instant, 6.0),
    "torch's allreduce": (torch_hooks.allreduce_hook, 25.0),
}
"""With the budget of what tracing adds."""

_BESIDE: dict[str, Hook] = {
    "control, the hook against itself": hooks.allreduce_hook,
    "floor, a frame, two clocks, an append": _stamped,
}


def _measure(rounds: int) -> dict[str, list[Cost]]:
    """Return what steps of 40 buckets of 16 KB cost with each hook, and with each one traced.

    Each traced hook has a tracer of its own, without probes: one would fall into few of the rounds,
    and has a row elsewhere.  Raises ``RuntimeError`` where DDP cut the model into other buckets, or
    records were lost.
    """
    sides = {**_BESIDE, **{name: hook for name, (hook, _) in _TRACED.items()}}
    with ExitStack() as stack:
        tracers = []
        for name, (hook, _) in _TRACED.items():
            tracer = Tracer([], error_every=0, align_clocks=False, interval_s=_ASLEEP_S)
            tracers.append(stack.enter_context(tracer))
            sides[f"traced {name}"] = trace(hook, tracer=tracer)
        turn = SimpleNamespace(hook=None)
        model = linear_stack(_WIDTH, BUCKETS, _whose_turn_it_is, turn)
        data = torch.randn(_BATCH, _WIDTH)
        turns = in_turns([partial(_step, turn, hook, model, data) for hook in sides.values()])
        costs: list[list[Cost]] = []
        while len(costs) < _WARMUP_ROUNDS + rounds:
            costs.append(next(turns))
            if len(costs) % _ROUNDS_A_DRAIN == 0:
                for tracer in tracers:
                    tracer.flush()
        for tracer in tracers:
            _check(tracer)
    return dict(zip(sides, map(list, zip(*costs[_WARMUP_ROUNDS:], strict=True)), strict=True))


def _step(turn: SimpleNamespace, hook: Hook, model: Callable[..., Any], data: torch.Tensor) -> Cost:
    """Run a step of the model, whose hook is that of ``turn``."""
    turn.hook = hook
    wall = time.perf_counter_ns()
    loss = model(data).sum()
    own = time.thread_time_ns()
    loss.backward()
    own = time.thread_time_ns() - own
    return Cost(time.perf_counter_ns() - wall, own)


def _check(tracer: Tracer) -> None:
    settled = len(tracer.layouts()[-1].buckets)
    if settled != BUCKETS:
        raise RuntimeError(
            f"DDP made {settled} buckets where {BUCKETS} were meant; this version of torch "
            "cuts buckets in another way: adapt the model"
        )
    if tracer.losses():
        raise RuntimeError(f"the tracer lost records: {tracer.losses()}")


def added_us(costs: dict[str, list[Cost]], variant: str, base: str, kind: str) -> list[float]:
    """Return by how many µs a bucket ``variant`` is above ``base``; ``kind``: a field of Cost."""
    return [
        (getattr(more, kind) - getattr(less, kind)) / BUCKETS / 1e3
        for more, less in zip(costs[variant], costs[base], strict=True)
    ]
