"""Which steps of an opaque hook are looked up: by number, by time, and when somebody asks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from hooktrace.probes.step_sampler import CallStart
from hooktrace.probes.wire import WireSample
from hooktrace.probes.wire_sampler import WireSampler


@pytest.mark.parametrize(("every", "steps"), [(1, [2, 3, 4, 5, 6, 7, 8]), (3, [2, 3, 6]), (9, [2])])
def test_which_steps_are_sampled(every: int, steps: list[int]) -> None:
    """The first after the rebuild and each ``every``-th, once each; the drain wakes after them."""
    sampler = WireSampler(every)
    sink: Any = _Sink()
    slot: Any = _Slot()
    bucket: Any = None
    for step in range(9):
        for _ in range(2):
            if step >= sampler.next_step:
                sampler.enter(CallStart(slot, step, 0, bucket, None), sink)
    assert [s.step for s in sink.samples] == steps
    assert sink.woken == sum(step < 8 for step in steps)


@pytest.mark.parametrize(
    ("every", "period_s", "apart"), [(100, 0.1, 300), (100, 1, 100), (50, 0.1, 50)]
)
def test_samples_of_short_steps_are_further_apart(every: int, period_s: float, apart: int) -> None:
    """At least 25 s, unless a smaller distance than the usual one was asked for."""
    sampler = WireSampler(every)
    sink: Any = _Sink()
    slot: Any = _Slot()
    bucket: Any = None
    for step in range(1000):
        sink.now = int(step * period_s * 1e9)
        if step >= sampler.next_step:
            sampler.enter(CallStart(slot, step, 0, bucket, None), sink)
    steps = [s.step for s in sink.samples]
    assert steps[:2] == [2, apart]
    assert {b - a for a, b in pairwise(steps[1:])} == {apart}


def test_both_clocks_are_read_at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the thread waits for its core between them, but the once."""
    sink: Any = _Sink()
    slot: Any = _Slot()
    bucket: Any = None
    waits = iter([50_000, 400_000, 0, *[9_000] * 100])

    def wall_clock() -> int:
        sink.now += next(waits)
        return sink.now + 10**18

    monkeypatch.setattr("time.time_ns", wall_clock)
    WireSampler(9).enter(CallStart(slot, 2, 0, bucket, None), sink)
    (sample,) = sink.samples
    assert sample.wall_ns - sample.host_ns == 10**18


class _Sink:
    def __init__(self) -> None:
        self.samples: list[WireSample] = []
        self.woken = 0
        self.now = 0

    def clock(self) -> int:
        return self.now

    def push(self, sample: WireSample) -> None:
        self.samples.append(sample)

    def wake(self) -> None:
        self.woken += 1


class _Slot:
    class model:  # noqa: N801  # an attribute of the slot
        name = "net"


def test_a_burst_is_sampled_too() -> None:
    """Whatever the time."""
    sampler = WireSampler(4)
    sink: Any = _Sink()
    slot: Any = _Slot()
    bucket: Any = None
    for step in range(20):
        if step == 10:
            assert sampler.replan(3, step - 1)
        if step >= sampler.next_step:
            sampler.enter(CallStart(slot, step, 0, bucket, None), sink)
    assert [s.step for s in sink.samples] == [2, 4, 8, 10, 11, 12, 16]
