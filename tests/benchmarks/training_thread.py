"""What tracing adds to the training thread in backward, on two ranks.

    hooks --in turns, step by step--> processor time of each step --> differences, ratios of a round

As ``per bucket`` of ``hooktrace bench``, which counts all threads of one rank; but callbacks run on
gloo's threads here, as in a real job, and what is counted is the training thread's own processor
time in backward: what it computes, waits left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from types import SimpleNamespace

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks

from hooktrace import hooks
from hooktrace.commands.bench.cost import _flushed, _whose_turn_it_is, traced_beside
from hooktrace.commands.bench.harness import Hook, in_turns, linear_stack
from hooktrace.commands.bench.table import Row
from hooktrace.testing.ranks import run_ranks
from hooktrace.tracing.tracer import Tracer

BUCKETS = 40
_WARMUP_ROUNDS = 20
_TRACED: dict[str, tuple[Hook, str, float]] = {
    "allreduce": (hooks.allreduce_hook, "staged", 5.0),
    "torch's allreduce": (torch_hooks.allreduce_hook, "plain", 10.0),
}
"""With its kind, and the budget of what tracing adds, µs a bucket."""


def training_thread(*, quick: bool) -> Iterator[Row]:
    """Yield the rows of a staged hook, and of torch's own."""
    ranks = run_ranks(2, _measure, 100 if quick else 500)
    for name, (_, kind, budget) in _TRACED.items():
        added = [
            (traced - plain) / BUCKETS / 1e3
            for costs in ranks
            for traced, plain in zip(costs[f"traced {name}"], costs[name], strict=True)
        ]
        what = f"allreduce, {kind}: traced - untraced"
        yield Row(what, added, "µs/bucket", budget=budget)
    shares = [
        ours / torchs
        for costs in ranks
        for ours, torchs in zip(costs["allreduce"], costs["torch's allreduce"], strict=True)
    ]
    what = "allreduce: untraced staged hook / torch's own"
    yield Row(what, shares, "ratio", budget=1.0)


def _measure(rounds: int) -> dict[str, list[int]]:
    """Return what backward of 40 buckets of 16 KB cost the thread with each hook, ns a round.

    Raises ``RuntimeError`` where DDP cut the model into other buckets, or records were lost.
    """
    with ExitStack() as stack:
        sides, tracers = traced_beside(
            stack, {name: hook for name, (hook, _, _) in _TRACED.items()}
        )
        turn = SimpleNamespace(hook=None)
        model = linear_stack(64, BUCKETS, _whose_turn_it_is, turn)
        data = torch.randn(8, 64)
        turns = in_turns([partial(_step_ns, turn, hook, model, data) for hook in sides.values()])
        flushed = _flushed(turns, tracers)
        list(islice(flushed, _WARMUP_ROUNDS))
        costs = list(islice(flushed, rounds))
        for tracer in tracers:
            _check(tracer)
    return dict(zip(sides, map(list, zip(*costs, strict=True)), strict=True))


def _step_ns(
    turn: SimpleNamespace, hook: Hook, model: Callable[..., torch.Tensor], data: torch.Tensor
) -> int:
    turn.hook = hook
    loss = model(data).sum()
    started = time.thread_time_ns()
    loss.backward()
    return time.thread_time_ns() - started


def _check(tracer: Tracer) -> None:
    settled = len(tracer.assignments()[-1].buckets)
    if settled != BUCKETS:
        raise RuntimeError(
            f"DDP made {settled} buckets where {BUCKETS} were meant; this version of torch "
            "cuts buckets in another way: adapt the model"
        )
    if tracer.losses():
        raise RuntimeError(f"the tracer lost records: {tracer.losses()}")
