"""Who probes when, as each rank decides it from a store and its own step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from hooktrace.probes.schedule import NEVER, Agreement, Schedule


def agreements(wishes: list[int]) -> list[Agreement]:
    """Return one agreement a rank, each probing every ``wishes[rank]`` steps."""
    store = HashStore()
    return [Agreement(store, "key", r, len(wishes), every) for r, every in enumerate(wishes)]


def test_ranks_in_step_hear_of_the_meeting_before_it() -> None:
    """Named at step 1 for step 10."""
    ranks = agreements([7, 7, 7])
    for step in range(1, 3):
        for rank in ranks:
            if rank.meeting is None and step >= rank.next_step:
                rank.ask(step)
    assert [rank.meeting for rank in ranks] == [10, 10, 10]


@given(st.lists(st.integers(0, 8), min_size=2, max_size=4))
def test_ranks_a_few_steps_ahead_hear_of_it_in_time(ahead: list[int]) -> None:
    """Rank 0 is the last one; the others ask at each step, and may be 8 steps ahead of it."""
    ranks = agreements([1] * len(ahead))
    steps = [0, *ahead[1:]]
    while any(rank.meeting is None for rank in ranks):
        for r in reversed(range(len(ranks))):
            steps[r] += 1
            if ranks[r].meeting is None:
                ranks[r].ask(steps[r])
        assert max(steps) < 20
    meeting = ranks[0].meeting
    assert meeting is not None
    assert {rank.meeting for rank in ranks} == {meeting}
    assert max(steps) <= meeting


def test_different_wishes_never_meet() -> None:
    """A rank that probes at other steps would leave the others waiting."""
    ranks = agreements([1, 2])
    for rank in ranks:
        rank.ask(1)
    assert [rank.meeting for rank in ranks] == [NEVER, NEVER]


def test_a_rank_alone_asks_less_and_less_often() -> None:
    """Each step at first, then at doubling steps: a dozen times in 100,000 steps."""
    store = HashStore()
    rank = Agreement(store, "key", 0, 2, 1)
    asked = []
    for step in range(1, 100_000):
        if step >= rank.next_step:
            rank.ask(step)
            asked.append(step)
    assert rank.meeting is None
    assert asked[:64] == list(range(1, 65))
    assert asked[64:] == [64 * 2**k for k in range(1, 11)]
    assert rank.missing() == [1]


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


def test_all_buckets_when_asked_for() -> None:
    """Also those whose number is not known yet."""
    schedule = Schedule(3, 2, all_buckets=True)
    assert [schedule.takes(5, bucket, 0) for bucket in range(3)] == [True] * 3
    assert not Schedule(3, 2).takes(5, 0, 0)
