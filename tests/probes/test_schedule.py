"""Which steps are looked at, and which bucket of a step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hooktrace.probes.schedule import Schedule


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 9))
def test_each_bucket_takes_its_turn(first: int, every: int, buckets: int) -> None:
    """Every ``every`` steps from the first on, the buckets one after another."""
    schedule = Schedule(first, every)
    step, taken = schedule.next_after(-1), []
    for turn in range(2 * buckets):
        assert step == first + turn * every
        taken += [b for b in range(buckets) if schedule.takes(step, b, buckets)]
        step = schedule.next_after(step)
    assert taken == 2 * list(range(buckets))


@given(st.integers(0, 50), st.integers(1, 20))
def test_it_begins_at_the_next_multiple(step: int, every: int) -> None:
    """Of a model whose first step that is: all its ranks begin there."""
    first = Schedule.after(step, every).first
    assert first % every == 0
    assert step < first <= step + every


def test_all_buckets_when_asked_for() -> None:
    """Also those whose number is not known yet."""
    schedule = Schedule(3, 2, all_buckets=True)
    assert [schedule.takes(5, bucket, 0) for bucket in range(3)] == [True] * 3
    assert [schedule.takes(6, bucket, 0) for bucket in range(3)] == [False] * 3
    assert not Schedule(3, 2).takes(5, 0, 0)


def test_a_burst_comes_beside_each_nth() -> None:
    """Buckets take turns in it too."""
    schedule = Schedule(10, 5, burst=range(14, 17))
    steps = [9]
    while len(steps) < 7:
        steps.append(schedule.next_after(steps[-1]))
    assert steps == [9, 10, 14, 15, 16, 20, 25]
    assert [[b for b in range(2) if schedule.takes(s, b, 2)] for s in (9, 10, 14, 15, 16, 17)] == [
        [],
        [0],
        [0],
        [1],
        [0],
        [],
    ]
