"""What tracing adds per bucket to forward and backward, and to the training thread.

    hooks --in turns, step by step--> Cost of each step --> differences, ratios of a round

In a round each variant of a hook has one step.  All of them share one DDP model, whose hook calls
the variant whose turn it is: two models of the same layers differ by some µs a bucket.  A sample is
the difference or ratio of two variants in one round.  The drains sleep, and are called now and
then.  One more is paused after the first rounds: its hook runs untraced, and steps are counted.

*Per bucket*, one rank, 40 buckets of 16 KB: the step waits for whatever the callback threads do
under the interpreter lock, so it is timed as a whole, by the clock; what the drain does afterwards
is not in it.  Beside it stand

- *control*: the untraced hook against itself, whose spread is the noise of the machine;
- the floor, the least that a tracer written in Python adds: a frame around the hook; two readings
  of the clock and an append as well; and a ``then`` for the end of the collective;
- the same of processor time, of all threads and with the drain's work.  Neither waiting nor other
  jobs of the machine are in it, so it is the steadier number, and the larger one.

*Training thread*, two ranks, where callbacks run on gloo's threads as in a real job: the thread's
own processor time in backward: what it computes, waits left out.  The same controls stand beside
it, and one that computes for 3 µs: on a virtual machine, or a shared one, it shows more than 3.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks

from hooktrace import hooks
from hooktrace.commands.bench.harness import Hook, done, in_turns, linear_stack, run_ranks
from hooktrace.commands.bench.table import Row
from hooktrace.exporters import Exporter
from hooktrace.tracing.trace import trace
from hooktrace.tracing.tracer import Tracer

from .backends import all_exporters, otlp_sink

BUCKETS = 40
_WIDTH = 64
_BATCH = 8
_WARMUP_ROUNDS = 20
_ROUNDS_A_DRAIN = 8
_ASLEEP_S = 3600.0
_BUDGETS_US = {"staged": 5.0, "opaque": 10.0}
"""Of the training thread."""


def per_bucket(*, quick: bool) -> Iterator[Row]:
    """Yield the rows by the clock, then those of processor time."""
    (costs,) = run_ranks(1, _all_sides, 150 if quick else 600)
    for kind, words, budget in (("wall", "clock", 8.0), ("process", "processor time", None)):
        for name in _FLOORS:
            added = added_us(costs, name, "allreduce", kind)
            yield Row(f"{words}: {name}", added, "µs/bucket")
        for name in _TRACED:
            added = added_us(costs, f"traced {name}", name, kind)
            yield Row(f"{words}: {name}, traced - untraced", added, "µs/bucket", budget=budget)
        added = added_us(costs, f"paused {_PAUSED}", _PAUSED, kind)
        yield Row(f"{words}: {_PAUSED}, traced and paused - untraced", added, "µs/bucket")
        for name in _PAIRS:
            shares = ratios(costs, name, f"torch's {name}", kind)
            yield Row(f"{words}: untraced step, {name} / torch's {name}", shares, "ratio")


def _all_sides(rounds: int) -> Costs:
    return measure_sides(_TRACED, rounds, untraced=_FLOORS, exporters=list)


def training_thread(*, quick: bool) -> Iterator[Row]:
    """Yield the rows of all hooks, with a tracer in memory and with all exporters."""
    rounds = 100 if quick else 500
    with otlp_sink():
        for name in _PAIRS:
            for exporting, suffix in ((False, ""), (True, ", all exporters")):
                ranks = run_ranks(2, _pair, name, rounds, exporting)
                for control in _controls(name, exporting):
                    added = [a for r in ranks for a in added_us(r, control, "staged", "own")]
                    yield Row(f"{name}, {control}", added, "µs/bucket")
                for kind, budget in _BUDGETS_US.items():
                    added = [a for r in ranks for a in added_us(r, f"traced {kind}", kind, "own")]
                    what = f"{name}, {kind}: traced - untraced{suffix}"
                    yield Row(what, added, "µs/bucket", budget=budget)
                if not exporting:
                    shares = [s for r in ranks for s in ratios(r, "staged", "opaque", "own")]
                    what = f"{name}: untraced staged hook / torch's own"
                    yield Row(what, shares, "ratio", budget=1.0)


def _pair(name: str, rounds: int, exporting: bool) -> Costs:
    sides = dict(zip(("staged", "opaque"), _PAIRS[name], strict=True))
    with tempfile.TemporaryDirectory() as directory:

        def exporters() -> list[Exporter]:
            return all_exporters(Path(tempfile.mkdtemp(dir=directory))) if exporting else []

        untraced = _controls(name, exporting)
        return measure_sides(sides, rounds, untraced=untraced, exporters=exporters)


def _controls(name: str, exporting: bool) -> dict[str, Hook]:
    """Return what is measured beside a pair, once: of the hook that the floor is made of."""
    if exporting or name != "allreduce":
        return {}
    return {**_FLOORS, "control, 3 µs of work": _working}


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

    def stamp(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        _stamps.append((start, time.perf_counter_ns()))
        return future.value()

    return hooks.allreduce_hook(state, bucket).then(stamp)


def _working(state: Any, bucket: Any) -> Any:
    end = time.perf_counter_ns() + 3000
    while time.perf_counter_ns() < end:
        pass
    return hooks.allreduce_hook(state, bucket)


def _instant(state: Any, bucket: Any) -> Any:
    return done(bucket.buffer())


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

_PAUSED = "allreduce"  # the hook of which a paused tracer is measured too

_FLOORS: dict[str, Hook] = {
    "control, the hook against itself": hooks.allreduce_hook,
    "floor, a frame": _frame,
    "floor, a frame, two clocks, an append": _stamped,
    "floor, the same and a then": _stamped_twice,
}


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
    traced: Mapping[str, Hook],
    rounds: int,
    *,
    untraced: Mapping[str, Hook],
    exporters: Callable[[], list[Exporter]],
) -> Costs:
    """Return what steps of 40 buckets of 16 KB cost with each hook, and with each hook traced.

    A variant is named as its hook, traced ``traced`` and the name.  ``untraced``: hooks that are
    not traced too.  Each traced hook has a tracer of its own with what ``exporters`` returns, and
    no probes: one would fall into few of the rounds, and has a row elsewhere.
    """
    sides = {name: _Side(hook) for name, hook in {**traced, **untraced}.items()}
    with ExitStack() as stack:
        for name, hook in traced.items():
            tracer = stack.enter_context(
                Tracer(exporters(), error_every=0, align_clocks=False, interval_s=_ASLEEP_S)
            )
            sides[f"traced {name}"] = _Side(trace(hook, tracer=tracer), tracer)
        if _PAUSED in traced:
            tracer = stack.enter_context(Tracer(error_every=0, interval_s=_ASLEEP_S))
            paused = _Side(trace(traced[_PAUSED], tracer=tracer), tracer, pauses=True)
            sides[f"paused {_PAUSED}"] = paused
        _train(list(sides.values()), _WARMUP_ROUNDS + rounds)
    return {name: side.costs[_WARMUP_ROUNDS:] for name, side in sides.items()}


def _train(sides: list[_Side], rounds: int) -> None:
    turn = SimpleNamespace(hook=None)
    model = linear_stack(_WIDTH, BUCKETS, _whose_turn_it_is, turn)
    data = torch.randn(_BATCH, _WIDTH)
    turns = in_turns([partial(side.step, turn, model, data) for side in sides])
    for number in range(1, rounds + 1):
        next(turns)
        if number % _ROUNDS_A_DRAIN == 0 or number == rounds:
            for side in sides:
                side.drain()


def _whose_turn_it_is(turn, bucket):  # type: ignore[no-untyped-def]
    """Run the hook whose turn it is; DDP refuses annotations that are strings."""
    return turn.hook(None, bucket)


class _Side:
    """One variant, and what its steps took."""

    def __init__(self, hook: Hook, tracer: Tracer | None = None, *, pauses: bool = False) -> None:
        self._pauses = pauses
        self.costs: list[Cost] = []
        self._hook = hook
        self._tracer = tracer
        self._drained = 0

    def step(self, turn: SimpleNamespace, model: Callable[..., Any], data: torch.Tensor) -> None:
        """Run a step of the model, whose hook is that of ``turn``."""
        turn.hook = self._hook
        if self._pauses and self._tracer is not None and len(self.costs) == _WARMUP_ROUNDS:
            self._tracer.recording = False
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
