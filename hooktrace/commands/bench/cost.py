"""What tracing adds per bucket, and to a whole training step.

    hooks --in turns, step by step--> times of each round --> differences, ratios --> rows

*Per bucket*: one rank, 40 buckets of 16 KB, processor time of all threads in forward and backward:
what others do on the machine makes that longer too, but far less than what the clock says.  All
variants share one DDP model, whose hook calls the variant whose turn it is: two models of the same
layers differ by some µs a bucket.  The control is the untraced hook against itself: the machine's
noise.  The floor is the least that a tracer written in Python adds: a frame around the hook, two
readings of the clock, and an append.  Of torch's hook one step in ten is timed, and the mean of ten
steps counts.

*Whole step*: two ranks, 12.6 M parameters, buckets of 8 MB, a record file.  Blocks of traced and
untraced steps take turns; a traced block ends with a flush, so that its export work falls into it.

Each is measured for a fixed time, not a fixed number of rounds: on a slow machine intervals are
wider, and the wait is not longer.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from rich.console import Console
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks

from ... import hooks
from ...exporters import RecordFileExporter
from ...records.bucket import ALL_TIMED, TIMED_ONE_IN
from ...testing.ranks import run_ranks
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .harness import Hook, done, in_turns, linear_stack, rounds_of
from .table import HEADING, Row, line_of, machine_facts

_T = TypeVar("_T")

_BUCKETS = 40
_WARMUP_ROUNDS = ALL_TIMED
_ROUNDS_A_FLUSH = 8
_START_S = 8.0
"""What the ranks take to start, about, on a slow machine."""

_ASLEEP_S = 3600.0
_LEAD_IN_STEPS = 4
_TIMED_STEPS = 10


def run(*, quick: bool = False, json_path: str | Path | None = None) -> int:
    """Measure, and print the rows; returns 0.

    It says on stderr what it measures, and about how long.  ``quick``: fewer repetitions.
    ``json_path`` names a file that gets all numbers.
    """
    warnings.filterwarnings("ignore", module=r"torch\.")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    facts = machine_facts()
    console.print(", ".join(f"{k} {v}" for k, v in facts.items()))
    console.print(HEADING, style="bold")
    rows = []
    for measure in (per_bucket, _whole_step):
        for row in measure(quick=quick):
            console.print(line_of(row))
            rows.append(row.numbers())
    if json_path is not None:
        Path(json_path).write_text(json.dumps({"machine": facts, "rows": rows}, indent=1) + "\n")
    return 0


def _measured(
    what: str, ranks: int, measure: Callable[[float], list[_T]], seconds: float
) -> list[_T]:
    """Return the rounds of rank 0; they take ``seconds``, more where six rounds take longer."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    console.print(f"measuring what tracing adds {what}: about {seconds + _START_S:.0f} s")
    rounds: list[_T] = run_ranks(ranks, measure, seconds)[0]
    return rounds


def per_bucket(*, quick: bool) -> Iterator[Row]:
    """Yield what tracing adds to a step of 40 small buckets."""
    rounds = _measured("per bucket", 1, _rounds_of_steps, 7.0 if quick else 25.0)
    times = {name: [round_[name] for round_ in rounds] for name in rounds[0]}
    for name in _BESIDE:
        yield Row(f"per bucket: {name}", _added_us(times[name], times["staged hook"]), "µs")
    for name, (_, budget) in _TRACED.items():
        added = _added_us(times[f"traced {name}"], times[name])
        if name != _TIMED_RARELY:
            yield Row(f"per bucket: {name}, traced - untraced", added, "µs", budget=budget)
            continue
        tens = [fmean(added[i : i + TIMED_ONE_IN]) for i in range(0, len(added), TIMED_ONE_IN)]
        yield Row(f"per bucket: {name}, traced - untraced", tens, "µs", budget=budget)
        yield Row("the same where the step is timed, one in ten", added[::TIMED_ONE_IN], "µs")


def _added_us(more: list[float], base: list[float]) -> list[float]:
    return [(a - b) / _BUCKETS / 1e3 for a, b in zip(more, base, strict=True)]


def _stamped(state: Any, bucket: Any) -> Any:
    start = time.perf_counter_ns()
    future = hooks.allreduce_hook(state, bucket)
    _stamps.append((start, time.perf_counter_ns()))
    return future


_stamps: deque[tuple[int, int]] = deque(maxlen=16384)


def _instant(state: Any, bucket: Any) -> Any:
    return done(bucket.buffer())


_BESIDE: dict[str, Hook] = {
    "control, the staged hook against itself": hooks.allreduce_hook,
    "floor, a frame, two clocks, an append": _stamped,
}
_TRACED: dict[str, tuple[Hook, float]] = {
    "staged hook": (hooks.allreduce_hook, 6.0),
    "torch's hook": (torch_hooks.allreduce_hook, 25.0),
    "hook done at once": (_instant, 6.0),
}
"""With the budget of what tracing adds, µs."""
_TIMED_RARELY = "torch's hook"


def _rounds_of_steps(seconds: float) -> list[dict[str, float]]:
    """Return what a step took with each variant, ns, in each round."""
    return steps_in_turns(seconds, {name: hook for name, (hook, _) in _TRACED.items()}, _BESIDE)


def steps_in_turns(
    seconds: float,
    hooks_by_name: dict[str, Hook],
    beside: dict[str, Hook],
    *,
    width: int = 64,
    buckets: int = _BUCKETS,
) -> list[dict[str, float]]:
    """Return processor time of a step with each hook, untraced and traced, ns, in each round.

    ``beside``: hooks that are not traced.  The model has ``buckets`` buckets of ``width`` x
    ``width`` numbers.
    """
    with ExitStack() as stack:
        sides, tracers = traced_beside(stack, hooks_by_name)
        sides |= beside
        turn = SimpleNamespace(hook=None)
        model = linear_stack(width, buckets, _whose_turn_it_is, turn)
        data = torch.randn(8, width)
        turns = in_turns([partial(_step_ns, turn, hook, model, data) for hook in sides.values()])
        flushed = _flushed(turns, tracers)
        list(islice(flushed, _WARMUP_ROUNDS))
        return [dict(zip(sides, one, strict=True)) for one in rounds_of(flushed, seconds)]


def traced_beside(
    stack: ExitStack, hooks_by_name: dict[str, Hook]
) -> tuple[dict[str, Hook], list[Tracer]]:
    """Return hooks, each untraced and as ``traced NAME``, and the tracers, which ``stack`` closes.

    Each has a tracer of its own, without probes and with a drain that sleeps.
    """
    sides, tracers = dict(hooks_by_name), []
    for name, hook in hooks_by_name.items():
        tracer = Tracer([], error_every=0, align_clocks=False, interval_s=_ASLEEP_S)
        tracers.append(stack.enter_context(tracer))
        sides[f"traced {name}"] = trace(hook, tracer=tracer)
    return sides, tracers


def _flushed(rounds: Iterator[_T], tracers: list[Tracer]) -> Iterator[_T]:
    """Yield the rounds; the tracers export between them, and never within one."""
    for number, round_ in enumerate(rounds):
        yield round_
        if number % _ROUNDS_A_FLUSH == 0:
            for tracer in tracers:
                tracer.flush()


def _whose_turn_it_is(turn, bucket):  # type: ignore[no-untyped-def]
    """Run the hook whose turn it is; DDP refuses annotations that are strings."""
    return turn.hook(None, bucket)


def _step_ns(
    turn: SimpleNamespace, hook: Hook, model: Callable[..., Any], data: torch.Tensor
) -> float:
    turn.hook = hook
    started = time.process_time_ns()
    model(data).sum().backward()
    return time.process_time_ns() - started


def _whole_step(*, quick: bool) -> Iterator[Row]:
    rounds = _measured("to a whole step", 2, _rounds_of_blocks, 30.0 if quick else 45.0)
    for at, what in enumerate(("traced / untraced", "the same, processor time of all threads")):
        shares = [traced[at] / untraced[at] for traced, untraced in rounds]
        yield Row(f"whole step: {what}", shares, "ratio")
    yield Row("a step, untraced", [untraced[0] / 1e6 for _, untraced in rounds], "ms")


def _rounds_of_blocks(seconds: float) -> list[list[tuple[float, float]]]:
    """Return what a step of a traced and of an untraced block took, in each round."""
    with tempfile.TemporaryDirectory() as folder, Tracer([RecordFileExporter(folder)]) as tracer:
        model = linear_stack(1024, 12, trace(hooks.allreduce_hook, tracer=tracer), cap_mb=8)
        optimizer, data = torch.optim.SGD(model.parameters(), lr=1e-6), torch.randn(64, 1024)

        def train(steps: int) -> None:
            for _ in range(steps):
                optimizer.zero_grad()
                model(data).square().mean().backward()
                optimizer.step()

        train(2 * _LEAD_IN_STEPS)
        sides = [partial(_block, tracer, recording, train) for recording in (True, False)]
        found = rounds_of(in_turns(sides), seconds)
        tracer.recording = True
    return found


def _block(tracer: Tracer, recording: bool, train: Callable[[int], None]) -> tuple[float, float]:
    """Return ns a step, by the clock and of processor time; all ranks begin together."""
    tracer.recording = recording
    dist.barrier()
    train(_LEAD_IN_STEPS)
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    train(_TIMED_STEPS)
    wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    tracer.flush()
    return wall / _TIMED_STEPS, cpu / _TIMED_STEPS
