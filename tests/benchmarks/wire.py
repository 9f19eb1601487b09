"""Wire stages against torch.profiler's ``gloo:`` events of the same steps.

    2 ranks, 12 layers of 1024 x 1024, buckets of 8 MB
    hooktrace: wire stages (start from the queue model, end from the stamp) --+
    profiler:  events of collectives (written by gloo's own worker threads) --+--> pairs, in order

The profiler is the judge: its events begin where a worker thread executes a collective, and end
where the worker is free again, after the collective's callback.  To tell what stamps cannot know
from what the queue model gets wrong, the same model is fed with the profiler's release times too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as torch_hooks
from torch.profiler import ProfilerActivity, profile

from hooktrace import hooks
from hooktrace.commands.bench.harness import Hook, linear_stack
from hooktrace.commands.bench.table import Row
from hooktrace.records import BucketRecord, RunInfo
from hooktrace.records.intervals import fifo_starts
from hooktrace.staging import group_hooks
from hooktrace.staging.groups import group_info, group_of
from hooktrace.testing.ranks import run_ranks
from hooktrace.tracing.trace import trace
from hooktrace.tracing.tracer import Tracer

Ints = npt.NDArray[np.int64]

_WARMUP_STEPS = 6
_EVENTS = ("gloo:all_reduce", "gloo:all_gather")
DECOMPRESSING = ("fp16", "allgather", "quantize-per-channel", "powersgd-rank2")
"""Hooks whose callbacks have something to do."""

PLAIN: dict[str, Hook] = {
    "torch's allreduce": torch_hooks.allreduce_hook,
    "torch's fp16": torch_hooks.fp16_compress_hook,
}
"""Hooks that are not staged, whose collectives process groups tell of."""

_SEEN = tuple(PLAIN) if group_hooks.available else ()
BARE = ("allreduce", *(name for name in _SEEN if name == "torch's allreduce"))
"""Those whose callbacks have nothing to do, so that the profiler's events are the wire's."""

ALL = ("allreduce", *DECOMPRESSING, *_SEEN)


class WireComparison(NamedTuple):
    """Times of one rank's collectives in host ns, in order; each of shape (collectives,).

    ``began``, ``released``: the profiler's events.  ``issued``, ``started``, ``arrived``: the
    record's queue and wire stages.  ``modelled``: started, with the profiler's release times.
    """

    began: Ints
    released: Ints
    issued: Ints
    started: Ints
    arrived: Ints
    modelled: Ints

    @property
    def event_ns(self) -> Ints:
        """The profiler's durations."""
        return self.released - self.began

    @property
    def wire_ns(self) -> Ints:
        """The durations of the record's wire stages."""
        return self.arrived - self.started

    def wire_sum_over(self, started: Ints) -> float:
        """Return the sum of wire times over what it is with other starts."""
        return float(self.wire_ns.sum() / (self.arrived - started).sum())

    @property
    def allowed_ns(self) -> float:
        """The difference that is ok: 2 % of the median duration, or 100 µs if that is more."""
        return max(0.02 * float(np.median(self.event_ns)), 100_000.0)


def compare_on_two_ranks(
    steps: int, names: Sequence[str] = ALL, deadline_s: float = 900.0
) -> dict[str, Sequence[WireComparison]]:
    """Run ``steps`` profiled and traced steps of each hook; return both ranks' comparisons.

    ``names``: in the catalogue, or of ``PLAIN``.
    """
    ranks = run_ranks(2, _measure, steps, names, deadline_s=deadline_s)
    return dict(zip(names, zip(*ranks, strict=True), strict=True))


def wire(*, quick: bool) -> Iterator[Row]:
    """Yield how far wire stages are from the profiler's durations."""
    comparison, _ = compare_on_two_ranks(10 if quick else 40, ["allreduce"])["allreduce"]
    off = abs(comparison.wire_ns - comparison.event_ns) / 1e3
    budget = comparison.allowed_ns / 1e3
    took = f"all-reduces of {np.median(comparison.event_ns) / 1e6:.3g} ms"
    note = "budget: 100 µs, or 2 % of the profiler's median"
    what = f"{took}: difference from torch.profiler"
    yield Row(what, off.tolist(), "µs", budget=budget, note=note)


def _measure(steps: int, names: Sequence[str]) -> list[WireComparison]:
    return [_compare(steps, name) for name in names]


def _compare(steps: int, hook: str) -> WireComparison:
    data = torch.randn(32, 1024)
    plain = PLAIN.get(hook)
    entry = next((entry for entry in hooks.catalogue() if entry.name == hook), None)
    # Without probes, whose all-reduces the profiler would count too.
    with Tracer(error_every=0) as tracer:
        traced = trace(plain or entry.hook, tracer=tracer)
        state = None if entry is None else entry.make_state(None)
        model = linear_stack(1024, 12, traced, state, cap_mb=8)
        for _ in range(_WARMUP_STEPS):
            model(data).sum().backward()
        dist.barrier()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(steps):
                model(data).sum().backward()
            dist.barrier()  # or it may end before a worker has written its last event
        buckets = [b for b in tracer.buckets() if b.step >= _WARMUP_STEPS]
        return _pair(_events(profiler, tracer.run_info()), buckets)


def _events(profiler: Any, run: RunInfo) -> list[tuple[int, int]]:
    """Return begin and end of the profiled collectives in host ns, in order."""
    results = profiler.profiler.kineto_results.events()
    wall = [(e.start_ns(), e.duration_ns()) for e in results if e.name() in _EVENTS]
    zero = run.wall_ns(0)
    return sorted((start - zero, start + duration - zero) for start, duration in wall)


def _stages(bucket: BucketRecord) -> Iterator[tuple[int, int, int]]:
    """Yield when each collective of a bucket was issued, started, and arrived."""
    for before, stage in pairwise(bucket.stages):
        if stage.name == "wire":
            issued = before.start_ns if before.derived else stage.start_ns
            yield issued, stage.start_ns, stage.end_ns


def _pair(events: list[tuple[int, int]], buckets: list[BucketRecord]) -> WireComparison:
    """Pair events with collectives: a backend executes them in the order of their launch."""
    stages = sorted(times for bucket in buckets for times in _stages(bucket))
    if len(events) != len(stages):
        raise RuntimeError(
            f"the profiler saw {len(events)} events of gloo and hooktrace {len(stages)} "
            "collectives; something else communicates, or this torch names the event otherwise"
        )
    (issued, started, arrived), (began, released) = np.transpose(stages), np.transpose(events)
    workers = group_info(group_of(None), "cpu").workers
    modelled = fifo_starts(issued.tolist(), arrived.tolist(), workers, freed=released.tolist())
    return WireComparison(began, released, issued, started, arrived, np.array(modelled))
