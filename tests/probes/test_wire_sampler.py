"""Which steps of a plain hook are looked up: by number, by time, and when somebody asks."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hooktrace.probes.wire_sampler import WireSampler
from tests.probes.fakes import Sink, bucket_of, slot_of, start_of


@pytest.mark.parametrize(
    ("every", "steps", "period_s", "burst_at", "sampled"),
    [
        (1, 9, 0, -1, [2, 3, 4, 5, 6, 7, 8]),
        (3, 9, 0, -1, [2, 3, 6]),
        (9, 9, 0, -1, [2]),
        (4, 20, 0, 10, [2, 4, 8, 10, 11, 12, 16]),  # three more are asked for
        # At least 25 s apart, unless a smaller distance than the usual one was asked for.
        (100, 1000, 0.1, -1, [2, 300, 600, 900]),
        (100, 500, 1, -1, [2, 100, 200, 300, 400]),
        (50, 200, 0.1, -1, [2, 50, 100, 150]),
    ],
)
def test_which_steps_are_sampled(
    every: int, steps: int, period_s: float, burst_at: int, sampled: list[int]
) -> None:
    """The first after the rebuild and each ``every``-th, once each; the drain wakes after them."""
    sampler, sink = WireSampler(every), Sink()
    slot, tracer = slot_of(bucket_of((3,))), cast("Any", sink)
    for step in range(steps):
        sink.clock.now_ns = int(step * period_s * 1e9)
        if step == burst_at:
            assert sampler.replan(step, 3)
        for _ in range(2):
            if step >= sampler.next_step:
                sampler.enter(start_of(slot, step), tracer)
    assert [one.step for one in sink.pushed] == sampled
    assert sink.woken == sum(step + 1 < steps for step in sampled)
