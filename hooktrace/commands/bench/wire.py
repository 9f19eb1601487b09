"""Wire stages against torch.profiler's ``gloo:all_reduce`` events of the same steps.

    2 ranks, 12 layers of 1024 x 1024, buckets of 8 MB
    hooktrace: wire stages (start from the queue model, end from the stamp)  --+
    profiler:  gloo:all_reduce events (written by gloo's own worker threads) --+--> pairs, in order

The profiler is the judge: its events begin and end where a worker thread executes a collective.
For contrast the same pairs are made with launch -> done, what one gets without a queue model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from ... import hooks
from ...records import BucketRecord
from ...records.summary import percentile
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .models import linear_stack
from .ranks import run_ranks
from .table import Row, row_of

_WARMUP_STEPS = 6
_EVENT = "gloo:all_reduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireComparison:
    """Durations in ns of one rank's collectives, one of each list for each, in order.

    ``event_ns``: the profiler's.  ``wire_ns``: the record's wire stages.  ``naive_ns``: from the
    collective's launch to its arrival, waiting for a worker included.
    """

    event_ns: tuple[int, ...]
    wire_ns: tuple[int, ...]
    naive_ns: tuple[int, ...]

    @property
    def event_p50_ns(self) -> float:
        """Median of the profiler's durations."""
        return percentile(self.event_ns, 0.5)

    @property
    def allowed_ns(self) -> float:
        """The difference that is ok: 2 % of the median duration, or 100 µs if that is more."""
        return max(0.02 * self.event_p50_ns, 100_000.0)

    def differences_ns(self, measured_ns: Sequence[int]) -> list[int]:
        """Return how far each of ``measured_ns`` is from its event: absolute ns."""
        return [abs(m - e) for m, e in zip(measured_ns, self.event_ns, strict=True)]

    def relative(self, measured_ns: Sequence[int]) -> list[float]:
        """Return how far each of ``measured_ns`` is from its event, as a share of the event."""
        differences = self.differences_ns(measured_ns)
        return [d / e for d, e in zip(differences, self.event_ns, strict=True)]

    def describe(self) -> str:
        """Return the medians in one line."""
        wire, naive = self.wire_ns, self.naive_ns
        return (
            f"{len(self.event_ns)} collectives, medians: "
            f"profiler {self.event_p50_ns / 1e6:.3f} ms, "
            f"wire {percentile(wire, 0.5) / 1e6:.3f} ms "
            f"(off by {percentile(self.differences_ns(wire), 0.5) / 1e3:.0f} µs, "
            f"{percentile(self.relative(wire), 0.5):.1%}), "
            f"launch -> done {percentile(naive, 0.5) / 1e6:.3f} ms "
            f"(off by {percentile(self.differences_ns(naive), 0.5) / 1e3:.0f} µs, "
            f"{percentile(self.relative(naive), 0.5):.1%})"
        )


def compare_on_two_ranks(steps: int, deadline_s: float) -> list[WireComparison]:
    """Run ``steps`` profiled and traced steps and return each rank's comparison."""
    return run_ranks(2, _measure, steps, deadline_s=deadline_s)


def run(*, quick: bool) -> list[Row]:
    """Return how far wire stages, and launch -> done, are from the profiler's durations."""
    ranks = compare_on_two_ranks(10 if quick else 40, deadline_s=300)
    comparison = ranks[0]
    wire, naive = comparison.wire_ns, comparison.naive_ns
    return [
        row_of("all_reduce of 8 MB, profiler's duration", _ms(comparison.event_ns), "ms"),
        row_of(
            "wire stage - profiler's event",
            [d / 1e3 for d in comparison.differences_ns(wire)],
            "µs",
            budget=comparison.allowed_ns / 1e3,
            note="budget: the larger of 100 µs and 2 % of the profiler's median",
        ),
        row_of("the same, relative", _percent(comparison.relative(wire)), "%"),
        row_of(
            "launch -> done - profiler's event, for contrast",
            _percent(comparison.relative(naive)),
            "%",
        ),
    ]


def _ms(values: Sequence[int]) -> list[float]:
    return [v / 1e6 for v in values]


def _percent(values: Sequence[float]) -> list[float]:
    return [v * 100 for v in values]


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
        event_ns=tuple(duration for _, duration in events),
        wire_ns=tuple(parts[-1].duration_ns for parts in stages),
        naive_ns=tuple(parts[-1].end_ns - parts[0].start_ns for parts in stages),
    )
