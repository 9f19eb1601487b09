"""Time that tracing adds per bucket to forward and backward, of 40 buckets of 16 KB on one rank.

The step waits for whatever the callback threads do under the interpreter lock, so it is timed as a
whole, by the clock; what the drain does afterwards is not in it.  Beside it stand

- *control*: the untraced hook against itself, whose spread is the noise of the machine;
- the floor, the least that a tracer written in Python adds: a frame around the hook; two readings
  of the clock and an append as well; and a ``then`` for the end of the collective;
- the same of processor time, of all threads and with the drain's work.  Neither waiting nor other
  jobs of the machine are in it, so it is the steadier number, and the larger one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks

from ... import hooks
from .ranks import run_ranks
from .sides import Costs, added_us, measure_sides, ratios
from .table import Row, row_of

_BUDGET_US = 8.0
_RATIOS = (("allreduce", "torch's allreduce"), ("fp16", "torch's fp16"))


def run(*, quick: bool) -> Iterator[Row]:
    """Yield the rows by the clock, then those of processor time."""
    rounds = 150 if quick else 600
    (costs,) = run_ranks(1, _measure, rounds, deadline_s=900)
    yield from _rows(costs, "wall", "clock", _BUDGET_US)
    yield from _rows(costs, "process", "processor time", None)


def _rows(costs: Costs, kind: str, words: str, budget: float | None) -> Iterator[Row]:
    for name in _floors():
        added = added_us(costs, name, "allreduce", kind)
        yield row_of(f"{words}: {name}", added, "µs/bucket")
    for name in _traced():
        added = added_us(costs, f"traced {name}", name, kind)
        yield row_of(f"{words}: {name}, traced - untraced", added, "µs/bucket", budget=budget)
    for ours, theirs in _RATIOS:
        shares = ratios(costs, ours, theirs, kind)
        yield row_of(f"{words}: untraced step, {ours} / {theirs}", shares, "ratio")


def _measure(rounds: int) -> Costs:
    return measure_sides(_traced(), rounds, untraced=_floors())


def _traced() -> dict[str, Callable[..., Any]]:
    return {
        "allreduce": hooks.allreduce_hook,
        "fp16": hooks.fp16_compress_hook,
        "torch's allreduce": torch_hooks.allreduce_hook,
        "torch's fp16": torch_hooks.fp16_compress_hook,
        "a hook done at once": _instant,
    }


def _floors() -> dict[str, Callable[..., Any]]:
    return {
        "control, allreduce against itself": hooks.allreduce_hook,
        "floor, a frame": _frame,
        "floor, a frame, two clocks, an append": _stamped,
        "floor, the same and a then": _stamped_twice,
    }


# DDP refuses annotations that are strings, which all are here.


def _frame(state, bucket):  # type: ignore[no-untyped-def]
    return hooks.allreduce_hook(state, bucket)


_stamps: deque[tuple[int, int]] = deque(maxlen=16384)


def _stamped(state, bucket):  # type: ignore[no-untyped-def]
    start = time.perf_counter_ns()
    future = hooks.allreduce_hook(state, bucket)
    _stamps.append((start, time.perf_counter_ns()))
    return future


def _stamped_twice(state, bucket):  # type: ignore[no-untyped-def]
    start = time.perf_counter_ns()

    def done(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        _stamps.append((start, time.perf_counter_ns()))
        return future.value()

    return hooks.allreduce_hook(state, bucket).then(done)


def _instant(state, bucket):  # type: ignore[no-untyped-def]
    del state
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future
