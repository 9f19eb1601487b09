"""The hub: when a step is closed, what is late, what is kept, and what a look at the job shows."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooktrace.ranks.whole_job.gatherer import Plan
from hooktrace.ranks.whole_job.job_steps import KEPT_STEPS, WAIT_S, JobSteps

from .parts import MODEL, MS, Seconds, message_of


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def test_a_step_is_closed_when_all_ranks_have_told(clock: Seconds) -> None:
    """And is one record."""
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1], [7]))
    assert job.closed() == []
    job.take(2, message_of([2, 3], [7], late=3))
    (record,) = job.closed()
    spread = record.spread
    assert (record.model, record.hook, record.world_size) == (*MODEL, 4)
    assert (spread.step, spread.ranks, spread.arrival_delay_ns, spread.last_rank) == (
        7,
        4,
        7 * MS,
        3,
    )
    assert (spread.period_mean_ns, spread.exposed_mean_ns) == (100 * MS, 5 * MS)
    assert job.closed() == []


def test_a_rank_that_never_tells_is_waited_for_a_while(clock: Seconds) -> None:
    """Then steps are closed without it, at once from then on."""
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1, 2], [1, 2]))
    clock.now += WAIT_S + 1.9
    assert job.closed() == []
    clock.now += 0.2
    assert [r.spread.step for r in job.closed()] == [1, 2]
    job.take(0, message_of([0, 1, 2], [3]))
    assert [(r.spread.step, r.spread.ranks) for r in job.closed()] == [(3, 3)]


def test_what_comes_late_counts_and_is_counted(clock: Seconds) -> None:
    """A rank that has come back is waited for again."""
    job = JobSteps(2, clock)
    job.take(0, message_of([0], [1]))
    clock.now += WAIT_S + 2
    assert len(job.closed()) == 1
    job.take(1, message_of([1], [1]))
    shown = job.snapshot()
    assert (shown.late, shown.steps[-1].ranks) == (1, 2)
    job.take(0, message_of([0], [2]))
    assert job.closed() == []


def test_memory_is_bounded_when_one_rank_never_reports(clock: Seconds) -> None:
    """However many steps the others make meanwhile."""
    job = JobSteps(2, clock)
    for first in range(0, 10_000, 100):
        job.take(0, message_of([0], range(first, first + 100)))
    assert len(job._table.of(MODEL)) == KEPT_STEPS
    assert len(job._open) <= 2 * KEPT_STEPS
    assert len(job.closed()) <= KEPT_STEPS
    assert job.snapshot().lost > 0


@given(st.randoms(use_true_random=False), st.integers(1, 5))
def test_the_order_of_messages_does_not_matter(source: random.Random, hosts: int) -> None:
    """Nor how ranks are spread over hosts."""
    ranks = list(range(12))
    source.shuffle(ranks)
    messages = [message_of(ranks[n::hosts], [1, 2, 3], late=5) for n in range(hosts)]
    job, other = JobSteps(12, Seconds()), JobSteps(12, Seconds())
    for number, message in enumerate(messages):
        job.take(number, message)
    other.take(0, message_of(range(12), [1, 2, 3], late=5))
    assert job.snapshot().steps == other.snapshot().steps
    assert sorted(r.spread.step for r in job.closed()) == [1, 2, 3]


def test_a_look_shows_ranks_by_lateness(clock: Seconds) -> None:
    """Those that are behind by steps come first, then the latest; with their host."""
    job = JobSteps(4, clock)
    job.take(0, message_of([0, 1], range(1, 11), late=1, host="a"))
    clock.now += 3
    job.take(2, message_of([2], range(1, 9), host="b"))
    job.take(3, message_of([3], range(1, 11), host="b"))
    shown = job.snapshot()
    assert [
        (r.line.rank, r.line.host, r.behind, r.arrival_delay_ns, r.age_s) for r in shown.ranks
    ] == [
        (2, "b", 2, 0, 0.0),
        (1, "a", 0, 7 * MS, 3.0),
        (0, "a", 0, 0, 3.0),
        (3, "b", 0, 0, 0.0),
    ]
    assert (shown.model, shown.told_by, shown.world_size) == ("net", 4, 4)
    assert [s.step for s in shown.steps] == list(range(1, 11))


def test_a_look_at_a_large_job_is_bounded(clock: Seconds) -> None:
    """The latest ranks alone, and how many there are."""
    job = JobSteps(10_000, clock)
    for first in range(0, 10_000, 8):
        job.take(first, message_of(range(first, first + 8), [1, 2], late=4242))
    shown = job.snapshot()
    assert (shown.told_by, len(shown.ranks), shown.ranks[0].line.rank) == (10_000, 128, 4242)


def test_a_look_at_a_job_that_has_told_nothing(clock: Seconds) -> None:
    """Also by the name of a model that is not there."""
    assert JobSteps(2, clock).snapshot().steps == ()
    assert JobSteps(2, clock).snapshot("no such").model == "no such"


def test_the_plan_follows_what_comes(clock: Seconds) -> None:
    """From senders and steps of the time since the last one."""
    job = JobSteps(4000, clock)
    for first in (0, 10):
        for host in range(500):
            job.take(host, message_of([host], range(first, first + 10)))
        clock.now += 1
        plan = job.next_plan()
    assert plan == Plan(4.0, 8)


def test_steps_that_were_told_in_time_are_not_lost(clock: Seconds) -> None:
    """Though only the last of them are kept."""
    job = JobSteps(1, clock)
    for step in range(3 * KEPT_STEPS):
        job.take(0, message_of([0], [step]))
        assert len(job.closed()) == 1
    assert (job.snapshot().lost, job.snapshot().late) == (0, 0)
