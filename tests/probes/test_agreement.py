"""From which step on a model is probed, as each rank decides it from a store and its own step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from hooktrace.probes.agreement import NEVER, Agreement, key_of


def agreements(wishes: list[int], start: int = 0) -> list[Agreement]:
    """Return one agreement a rank, each wishing ``wishes[rank]``, of a round."""
    store = HashStore()
    return [
        Agreement(store, "key", r, len(wishes), str(wish), number=int(start > 0), start=start)
        for r, wish in enumerate(wishes)
    ]


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
    assert ranks[1].difference() == "2 on this rank and 1 on rank 0 of its group"


def test_a_rank_alone_asks_less_and_less_often() -> None:
    """Each step at first, then at doubling steps: a dozen times in 100,000 steps."""
    store = HashStore()
    rank = Agreement(store, "key", 0, 2, "1", number=0, start=0)
    asked = []
    for step in range(1, 100_000):
        if step >= rank.next_step:
            rank.ask(step)
            asked.append(step)
    assert rank.meeting is None
    assert asked[:16] == list(range(1, 17))
    assert asked[16:] == [16 * 2**k for k in range(1, 13)]
    assert rank.missing() == [1]


@given(
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 8)), min_size=2, max_size=4),
)
def test_a_later_round_is_met_by_all_in_time(start: int, ranks: list[tuple[int, int]]) -> None:
    """Though a rank learns long after the others that the one before has ended.

    Each begins so many steps after the failure, and is so many ahead of rank 0.
    """
    store, size = HashStore(), len(ranks)
    behind = [begins for begins, _ in ranks]
    ahead = [0, *(steps for _, steps in ranks[1:])]
    rounds: list[Agreement | None] = [None] * size
    step = start
    while any(one is None or one.meeting is None for one in rounds):
        for r in range(size):
            now = step + ahead[r]
            if rounds[r] is None and now >= start + behind[r]:
                rounds[r] = Agreement(store, "key", r, size, "1", number=3, start=start)
            one = rounds[r]
            if one is not None and one.meeting is None and now >= one.next_step:
                one.ask(now)
                assert one.meeting is None or now <= one.meeting
        step += 1
    assert step <= start + 4 * max(behind) + 30


def test_ranks_agree_on_when_a_round_ended() -> None:
    """As the first of them says; a rank that leaves ends it too."""
    one, other = agreements([1, 1], start=100)
    assert not other.is_over()
    assert (one.end(117), other.end(120)) == (117, 117)
    assert other.is_over()
    assert other.has_left() is None
    one.leave()
    assert (one.has_left(), other.has_left()) == (0, 0)
    other.leave()
    assert (one.has_left(), other.has_left()) == (1, 1)


def test_a_rank_that_leaves_asks_nothing_of_the_store() -> None:
    """It may be what hangs; the others find the round over, and who has left."""

    class Mute(HashStore):
        def compare_set(self, *args: str) -> bytes:  # type: ignore[override]
            raise AssertionError("it waits for an answer")

        check = get = compare_set  # type: ignore[assignment]

    store = HashStore()
    one, other = (Agreement(store, "key", r, 2, "1", number=0, start=100) for r in range(2))
    assert not other.is_over()
    one._store = Mute()
    said: dict[str, str] = {}
    one._store.set = said.__setitem__  # type: ignore[method-assign]
    one.leave()
    for key, value in said.items():
        store.set(key, value)
    assert other.is_over()
    assert other.has_left() == 0


def test_a_round_has_the_burst_of_the_first_to_come() -> None:
    """Whatever the others were asked for meanwhile."""
    store = HashStore()
    rounds = [Agreement(store, "k", rank, 3, "same", number=1, start=0) for rank in range(3)]
    assert [one.burst(wanted) for one, wanted in zip(rounds, (4, 0, 7), strict=True)] == [4] * 3


def test_models_that_are_alike_go_by_their_order() -> None:
    """Others have keys of their own."""
    keys = [key_of("probes", known) for known in ("alike", "alike", "other", "alike")]
    assert len(set(keys)) == 4
    assert [key.rpartition("/")[2] for key in keys] == ["1", "2", "1", "3"]
