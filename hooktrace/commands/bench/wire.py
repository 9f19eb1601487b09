"""Wire stages against torch.profiler's ``gloo:all_reduce`` events of the same steps.

    2 ranks, 12 layers of 1024 x 1024, buckets of 8 MB
    hooktrace: wire stages (start from the queue model, end from the stamp)  --+
    profiler:  gloo:all_reduce events (written by gloo's own worker threads) --+--> pairs, in order

The profiler is the judge: its events begin and end where a worker thread executes a collective.
For contrast the same pairs are made with launch -> done, what one gets without a queue model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from ... import hooks
from ...records import BucketRecord
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .harness import linear_stack, run_ranks
from .table import Row

_WARMUP_STEPS = 6
_EVENT = "gloo:all_reduce"


class WireComparison(NamedTuple):
    """Durations in ns of one rank's collectives, in order; each of shape (collectives,).

    ``event_ns``: the profiler's.  ``wire_ns``: the record's wire stages.  ``naive_ns``: from the
    collective's launch to its arrival, waiting for a worker included.
    """

    event_ns: np.ndarray
    wire_ns: np.ndarray
    naive_ns: np.ndarray

    @property
    def allowed_ns(self) -> float:
        """The difference that is ok: 2 % of the median duration, or 100 µs if that is more."""
        return max(0.02 * float(np.median(self.event_ns)), 100_000.0)


def compare_on_two_ranks(steps: int, deadline_s: float = 300.0) -> list[WireComparison]:
    """Run ``steps`` profiled and traced steps and return each rank's comparison."""
    return run_ranks(2, _measure, steps, deadline_s=deadline_s)


def wire(*, quick: bool) -> Iterator[Row]:
    """Yield how far wire stages, and launch -> done, are from the profiler's durations."""
    comparison, _ = compare_on_two_ranks(10 if quick else 40)
    event = comparison.event_ns
    off, naive_off = (abs(ns - event) for ns in (comparison.wire_ns, comparison.naive_ns))
    yield Row("all_reduce of 8 MB, profiler's duration", (event / 1e6).tolist(), "ms")
    yield Row(
        "wire stage - profiler's event",
        (off / 1e3).tolist(),
        "µs",
        budget=comparison.allowed_ns / 1e3,
        note="budget: the larger of 100 µs and 2 % of the profiler's median",
    )
    yield Row("the same, relative", (100 * off / event).tolist(), "%")
    what = "launch -> done - profiler's event, for contrast"
    yield Row(what, (100 * naive_off / event).tolist(), "%")


def _measure(steps: int) -> WireComparison:
    data = torch.randn(32, 1024)
    # Without probes, whose all-reduces the profiler would count too.
    with Tracer(error_every=0) as tracer:
        model = linear_stack(1024, 12, trace(hooks.allreduce_hook, tracer=tracer), cap_mb=8)
        for _ in range(_WARMUP_STEPS):
            model(data).sum().backward()
        dist.barrier()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(steps):
                model(data).sum().backward()
        buckets = [b for b in tracer.buckets() if b.step >= _WARMUP_STEPS]
    return _pair(_events(profiler), buckets)


def _events(profiler: Any) -> list[tuple[int, int]]:
    """Return (start, duration) of the profiled collectives in ns, in order of their start."""
    results = profiler.profiler.kineto_results.events()
    events = [(e.start_ns(), e.duration_ns()) for e in results if e.name() == _EVENT]
    return sorted(events)


def _pair(events: list[tuple[int, int]], buckets: list[BucketRecord]) -> WireComparison:
    """Pair events with collectives: a backend executes them in the order of their launch.

    Raises ``RuntimeError`` when there are not as many of one as of the other.
    """
    stages = [[s for s in b.stages if s.name in ("queue", "wire")] for b in buckets]
    stages.sort(key=lambda parts: parts[0].start_ns)
    if len(events) != len(stages):
        raise RuntimeError(
            f"the profiler saw {len(events)} {_EVENT} events and hooktrace {len(stages)} "
            "collectives; something else communicates, or this torch names the event otherwise"
        )
    return WireComparison(
        event_ns=np.array([duration for _, duration in events]),
        wire_ns=np.array([parts[-1].duration_ns for parts in stages]),
        naive_ns=np.array([parts[-1].end_ns - parts[0].start_ns for parts in stages]),
    )
