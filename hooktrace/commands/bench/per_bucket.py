"""What tracing adds per bucket to forward and backward, and to the training thread.

*Per bucket*, one rank, 40 buckets of 16 KB: the step waits for whatever the callback threads do
under the interpreter lock, so it is timed as a whole, by the clock; what the drain does afterwards
is not in it.  Beside it stand

- *control*: the untraced hook against itself, whose spread is the noise of the machine;
- the floor, the least that a tracer written in Python adds: a frame around the hook; two readings
  of the clock and an append as well; and a ``then`` for the end of the collective;
- the same of processor time, of all threads and with the drain's work.  Neither waiting nor other
  jobs of the machine are in it, so it is the steadier number, and the larger one.

*Training thread*, two ranks, where callbacks run on gloo's threads as in a real job: the thread's
own processor time in backward: what it computes, waits left out.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks

from ... import hooks
from .backends import all_exporters, otlp_sink
from .harness import Hook, run_ranks
from .sides import Costs, added_us, measure_sides, ratios
from .table import Row, row_of

_BUDGETS_US = {"staged": 5.0, "opaque": 10.0}
"""Of the training thread."""


def per_bucket(*, quick: bool) -> Iterator[Row]:
    """Yield the rows by the clock, then those of processor time."""
    (costs,) = run_ranks(1, _all_sides, 150 if quick else 600, deadline_s=900)
    for kind, words, budget in (("wall", "clock", 8.0), ("process", "processor time", None)):
        for name in _FLOORS:
            added = added_us(costs, name, "allreduce", kind)
            yield row_of(f"{words}: {name}", added, "µs/bucket")
        for name in _TRACED:
            added = added_us(costs, f"traced {name}", name, kind)
            yield row_of(f"{words}: {name}, traced - untraced", added, "µs/bucket", budget=budget)
        for name in _PAIRS:
            shares = ratios(costs, name, f"torch's {name}", kind)
            yield row_of(f"{words}: untraced step, {name} / torch's {name}", shares, "ratio")


def _all_sides(rounds: int) -> Costs:
    return measure_sides(_TRACED, rounds, untraced=_FLOORS)


def training_thread(*, quick: bool) -> Iterator[Row]:
    """Yield the rows of all hooks, with a tracer in memory and with all exporters."""
    rounds = 100 if quick else 500
    with otlp_sink():
        for name in _PAIRS:
            for exporting, suffix in ((False, ""), (True, ", all exporters")):
                ranks = run_ranks(2, _pair, name, rounds, exporting, deadline_s=300)
                for kind, budget in _BUDGETS_US.items():
                    added = [a for r in ranks for a in added_us(r, f"traced {kind}", kind, "own")]
                    what = f"{name}, {kind}: traced - untraced{suffix}"
                    yield row_of(what, added, "µs/bucket", budget=budget)
                if not exporting:
                    shares = [s for r in ranks for s in ratios(r, "staged", "opaque", "own")]
                    what = f"{name}: untraced staged hook / torch's own"
                    yield row_of(what, shares, "ratio", budget=1.0)


def _pair(name: str, rounds: int, exporting: bool) -> Costs:
    sides = dict(zip(("staged", "opaque"), _PAIRS[name], strict=True))
    with tempfile.TemporaryDirectory() as directory:
        folders = (Path(directory, str(number)) for number in count())
        return measure_sides(
            sides, rounds, exporters=lambda: all_exporters(next(folders)) if exporting else []
        )


def _frame(state: Any, bucket: Any) -> Any:
    return hooks.allreduce_hook(state, bucket)


_stamps: deque[tuple[int, int]] = deque(maxlen=16384)


def _stamped(state: Any, bucket: Any) -> Any:
    start = time.perf_counter_ns()
    future = hooks.allreduce_hook(state, bucket)
    _stamps.append((start, time.perf_counter_ns()))
    return future


def _stamped_twice(state: Any, bucket: Any) -> Any:
    start = time.perf_counter_ns()

    def done(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        _stamps.append((start, time.perf_counter_ns()))
        return future.value()

    return hooks.allreduce_hook(state, bucket).then(done)


def _instant(state: Any, bucket: Any) -> Any:
    del state
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


_PAIRS: dict[str, tuple[Hook, Hook]] = {
    "allreduce": (hooks.allreduce_hook, torch_hooks.allreduce_hook),
    "fp16": (hooks.fp16_compress_hook, torch_hooks.fp16_compress_hook),
}
"""Ours, which is staged, and torch's own."""

_TRACED: dict[str, Hook] = {
    **{name: ours for name, (ours, _) in _PAIRS.items()},
    **{f"torch's {name}": theirs for name, (_, theirs) in _PAIRS.items()},
    "a hook done at once": _instant,
}

_FLOORS: dict[str, Hook] = {
    "control, allreduce against itself": hooks.allreduce_hook,
    "floor, a frame": _frame,
    "floor, a frame, two clocks, an append": _stamped,
    "floor, the same and a then": _stamped_twice,
}
