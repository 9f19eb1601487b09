"""Which steps of a plain hook are looked up: by number, by time, and when somebody asks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from hooktrace.probes.wire_sampler import WireSampler
from tests.probes.fakes import Sink, bucket_of, slot_of, start_of


def sampled(every: int, steps: int, period_s: float = 0.0, burst_at: int = -1) -> tuple[Any, Any]:
    """Return the sampled steps of so many, each with two calls, and the sink.

    ``burst_at``: the step before which three more are asked for.
    """
    sampler, sink = WireSampler(every), Sink()
    slot: Any = slot_of(bucket_of((3,)))
    for step in range(steps):
        sink.clock.now_ns = int(step * period_s * 1e9)
        if step == burst_at:
            assert sampler.replan(step, 3)
        for _ in range(2):
            if step >= sampler.next_step:
                sampler.enter(start_of(slot, step), sink)
    return [one.step for one in sink.pushed], sink


@pytest.mark.parametrize(("every", "steps"), [(1, [2, 3, 4, 5, 6, 7, 8]), (3, [2, 3, 6]), (9, [2])])
def test_which_steps_are_sampled(every: int, steps: list[int]) -> None:
    """The first after the rebuild and each ``every``-th, once each; the drain wakes after them."""
    found, sink = sampled(every, 9)
    assert found == steps
    assert sink.woken == sum(step < 8 for step in steps)


@pytest.mark.parametrize(
    ("every", "period_s", "apart"), [(100, 0.1, 300), (100, 1, 100), (50, 0.1, 50)]
)
def test_samples_of_short_steps_are_further_apart(every: int, period_s: float, apart: int) -> None:
    """At least 25 s, unless a smaller distance than the usual one was asked for."""
    steps, _ = sampled(every, 1000, period_s)
    assert steps[:2] == [2, apart]
    assert {b - a for a, b in pairwise(steps[1:])} == {apart}


def test_a_burst_is_sampled_too() -> None:
    """Whatever the time."""
    assert sampled(4, 20, burst_at=10)[0] == [2, 4, 8, 10, 11, 12, 16]
