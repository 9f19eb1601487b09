"""The hub: when a step is a record, what is kept, and what a look shows."""

from __future__ import annotations

import pytest

from hooktrace.ranks.whole_job.job_steps import KEPT_STEPS, WAIT_S, JobSteps

from .parts import MODEL, MS, Seconds, message_of


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def test_a_step_is_a_record_when_all_ranks_have_told(clock: Seconds) -> None:
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1], [7]))
    assert job.newest() == []
    job.take(2, message_of([2, 3], [7], late=3))
    (record,) = job.newest()
    spread = record.spread
    assert (record.model, record.hook, record.world_size) == (*MODEL, 4)
    assert (spread.step, spread.ranks) == (7, 4)
    assert (spread.arrival_delay_ns, spread.last_rank) == (7 * MS, 3)
    assert (spread.period_mean_ns, spread.exposed_mean_ns) == (100 * MS, 5 * MS)
    assert job.newest() == []


def test_a_rank_that_never_tells_is_waited_for_a_while(clock: Seconds) -> None:
    """Then steps are recorded without it, the newest alone; or where others would be forgotten."""
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1, 2], [1, 2]))
    clock.now += WAIT_S + 1.9
    assert job.newest() == []
    clock.now += 0.2
    assert [(r.spread.step, r.spread.ranks) for r in job.newest()] == [(2, 3)]
    for first in (3, 203):
        job.take(0, message_of([0, 1, 2], range(first, first + 200)))
    assert [r.spread.step for r in job.newest()] == [402 - KEPT_STEPS // 2 - 1]


def test_what_comes_late_counts(clock: Seconds) -> None:
    """In a step that has its record already."""
    job = JobSteps(2, clock)
    job.take(0, message_of([0], [1]))
    clock.now += WAIT_S + 2
    assert len(job.newest()) == 1
    job.take(1, message_of([1], [1]))
    assert job.snapshot().steps[-1].ranks == 2


def test_memory_is_bounded(clock: Seconds) -> None:
    job = JobSteps(2, clock)
    for first in range(0, 20_000, 100):
        job.take(0, message_of([0], range(first, first + 100)))
    ((_, steps),) = job._table.items()
    assert (len(steps), max(steps), len(job._since)) == (KEPT_STEPS, 19_999, 16 * KEPT_STEPS)


def test_a_look_shows_ranks_by_lateness(clock: Seconds) -> None:
    """The latest first; with their host."""
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1], range(1, 11), late=1, host="a"))
    clock.now += 3
    job.take(2, message_of([2], range(1, 9), host="b"))
    job.take(3, message_of([3], range(1, 11), host="b"))
    shown = job.snapshot()
    rows = [(r.line.rank, r.line.host, r.arrival_delay_ns, r.age_s) for r in shown.ranks]
    assert rows == [(1, "a", 7 * MS, 3), (0, "a", 0, 3), (2, "b", 0, 0), (3, "b", 0, 0)]
    assert (shown.model, shown.told_by, shown.world_size) == ("net", 4, 4)
    assert [s.step for s in shown.steps] == list(range(1, 11))
