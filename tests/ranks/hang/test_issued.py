"""What torch knows of the ranks' collectives, in groups that not all ranks are in."""

from __future__ import annotations

from typing import Any

from hooktrace.ranks.hang.collectives import PendingCollective
from hooktrace.ranks.hang.issued import Comparison, compare
from hooktrace.ranks.hang.status import RankStatus

from .answers import status

PAIR = (0, 2, 1)


def waiting(rank: int, group: str, number: int, members: Any, issued: int | None = None) -> Any:
    """A rank that has issued a collective of a group, and waits for it."""
    one = PendingCollective(group, "tp", number, "all_reduce", 1024, members)
    return status(
        rank, pending=(one,), issued={"0": 5, group: number if issued is None else issued}
    )


def elsewhere(rank: int, **issued: int) -> RankStatus:
    return status(rank, pending=(), issued={"0": 5, **issued})


def compared(*statuses: RankStatus) -> Comparison | None:
    return compare({one.rank: one for one in statuses})


def test_ranks_of_other_groups_have_nothing_to_issue() -> None:
    """They are not late, and have not completed it."""
    here = [waiting(rank, "1", 7, PAIR) for rank in (0, 1)]
    found = compared(*here, elsewhere(2), elsewhere(3, **{"2": 3}))
    text = "ranks 0, 1 in all_reduce of 1,024 elements of group 'tp', its collective 7"
    assert found == Comparison("same", (), text)


def test_a_rank_of_the_group_that_has_not_issued_it_is_named() -> None:
    """Whether it has issued anything there or not."""
    here = waiting(0, "1", 7, PAIR)
    for late in (elsewhere(1, **{"1": 6}), elsewhere(1)):
        found = compared(here, late, elsewhere(2), elsewhere(3))
        assert found is not None
        assert (found.verdict, found.ranks) == ("not_issued", (1,))


def test_where_the_members_are_not_known_those_count_that_issued_something_there() -> None:
    """As of a group whose ranks are no range."""
    here = waiting(0, "1", 7, None)
    found = compared(here, elsewhere(1, **{"1": 6}), elsewhere(2), elsewhere(3))
    assert found is not None
    assert (found.verdict, found.ranks) == ("not_issued", (1,))
    assert compared(here, elsewhere(2)).verdict == "same"  # type: ignore[union-attr]


def test_a_rank_of_the_group_that_has_its_result_is_named() -> None:
    """And nobody who is not in it."""
    done = elsewhere(1, **{"1": 7})
    found = compared(waiting(0, "1", 7, PAIR), done, elsewhere(2), elsewhere(3))
    assert found is not None
    assert (found.verdict, found.ranks) == ("completed", (1,))


def test_what_a_rank_waits_in_tells_before_what_others_wait_in_for_it() -> None:
    """Rank 1 has left one out of its pair's, and stands at a barrier now, as the others do."""
    first = waiting(0, "1", 7, PAIR)
    barrier = PendingCollective("0", "default_pg", 6, "barrier", 0, (0, 4, 1))
    others = [
        status(rank, pending=(barrier,), issued={"0": 6, **({"1": 6} if rank == 1 else {})})
        for rank in (1, 2, 3)
    ]
    statuses = {one.rank: one for one in (first, *others)}
    found = compare(statuses, waiting=(0,))
    assert found is not None
    assert (found.verdict, found.ranks) == ("not_issued", (1,))
    assert compare(statuses).ranks == (0,)  # type: ignore[union-attr]
