"""Which steps are looked at, and which bucket of a step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hooktrace.probes.schedule import Schedule


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 9))
def test_each_bucket_takes_its_turn(after: int, every: int, buckets: int) -> None:
    """From the next multiple on, at which all ranks of a model that begins later begin."""
    schedule = Schedule.after(after, every)
    first = schedule.first
    assert first % every == 0
    assert after < first <= after + every
    step, taken = schedule.next_after(-1), []
    for turn in range(2 * buckets):
        assert step == first + turn * every
        taken += [b for b in range(buckets) if schedule.takes(step, b, buckets)]
        step = schedule.next_after(step)
    assert taken == 2 * list(range(buckets))


def test_all_buckets_when_asked_for() -> None:
    """Also those whose number is not known yet."""
    schedule = Schedule(3, 2, all_buckets=True)
    assert [schedule.takes(step, bucket, 0) for step in (5, 6) for bucket in (0, 2)] == [1, 1, 0, 0]
    assert not Schedule(3, 2).takes(5, 0, 0)


def test_a_burst_comes_beside_each_nth() -> None:
    """Buckets take turns in it too."""
    schedule = Schedule(10, 5, burst=range(14, 17))
    steps = [9]
    while len(steps) < 7:
        steps.append(schedule.next_after(steps[-1]))
    assert steps == [9, 10, 14, 15, 16, 20, 25]
    taken = [(step, b) for step in range(9, 18) for b in range(2) if schedule.takes(step, b, 2)]
    assert taken == [(10, 0), (14, 0), (15, 1), (16, 0)]
