"""What torch's Flight Recorder lists, and that of all ranks, also in groups of some of them."""

from __future__ import annotations

import json
from typing import Any

from hooktrace.ranks.hang.collectives import (
    Collectives,
    Comparison,
    PendingCollective,
    collectives,
    compare,
)


def entry(**more: Any) -> dict[str, Any]:
    """An entry as torch 2.13 writes it for gloo."""
    return {
        "collective_seq_id": 7,
        "input_sizes": [[10, 3]],
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "retired": False,
        "state": "scheduled",
        **more,
    }


def dumped(*entries: dict[str, Any], **more: Any) -> Any:
    status = {"0": {"last_enqueued_collective": "7"}}
    return lambda *_: json.dumps({"entries": entries, "pg_status": status, **more}).encode()


def test_pending() -> None:
    """What has not completed, and the last one issued."""
    found = collectives([dumped(entry(), entry(retired=True), entry(state="completed"))])
    assert found is not None
    assert found.pending == (PendingCollective("0", "default_pg", 7, "all_reduce", 30),)
    assert found.issued == {"0": 7}


def test_groups_go_by_their_names() -> None:
    """Each process numbers those that it is in; a number without a collective has no name."""
    own = entry(pg_id=1, process_group=["3", "mesh_dp"], collective_seq_id=2)
    status = {number: {"last_enqueued_collective": "4"} for number in ("0", "1", "2")}
    found = collectives([dumped(own, pg_status=status)])
    assert found is not None
    assert [(one.group, one.name) for one in found.pending] == [("3", "mesh_dp")]
    assert found.issued == {"0": 4, "3": 4}


def test_hooktraces_own_groups() -> None:
    """They have no name, and are none of the user's."""
    found = collectives([dumped(entry(process_group=["", ""]))])
    assert found is not None
    assert found.pending == ()


def test_without_a_recorder() -> None:
    """Nothing is known then: no function, one that raises, one that is switched off."""

    def raises(*_: bool) -> bytes:
        raise RuntimeError("no such thing")

    assert collectives([]) is None
    assert collectives([raises]) is None
    assert collectives([lambda *_: b"{}"]) is None
    assert collectives([dumped({"pg_id": 0})]) is None


PAIR = (0, 2, 1)


def waiting(group: str, number: int, members: Any) -> Collectives:
    """A rank that has issued a collective of a group, and waits for it."""
    one = PendingCollective(group, "tp", number, "all_reduce", 1024, members)
    return Collectives((one,), {"0": 5, group: number})


def elsewhere(**issued: int) -> Collectives:
    return Collectives((), {"0": 5, **issued})


def compared(*ranks: Collectives) -> Comparison | None:
    return compare(dict(enumerate(ranks)))


def test_ranks_of_other_groups_have_nothing_to_issue() -> None:
    """They are not late, and have not completed it."""
    here = [waiting("1", 7, PAIR)] * 2
    found = compared(*here, elsewhere(), elsewhere(**{"2": 3}))
    text = "ranks 0, 1 in all_reduce of 1,024 elements of group 'tp', its collective 7"
    assert found == Comparison("same", (), text)


def test_a_rank_of_the_group_that_has_not_issued_it_is_named() -> None:
    """Whether it has issued anything there or not."""
    here = waiting("1", 7, PAIR)
    for late in (elsewhere(**{"1": 6}), elsewhere()):
        found = compared(here, late, elsewhere(), elsewhere())
        assert found is not None
        assert (found.verdict, found.ranks) == ("not_issued", (1,))


def test_where_the_members_are_not_known_those_count_that_issued_something_there() -> None:
    """As of a group whose ranks are no range."""
    here = waiting("1", 7, None)
    found = compared(here, elsewhere(**{"1": 6}), elsewhere(), elsewhere())
    assert found is not None
    assert (found.verdict, found.ranks) == ("not_issued", (1,))
    assert compared(here, elsewhere()).verdict == "same"  # type: ignore[union-attr]


def test_a_rank_of_the_group_that_has_its_result_is_named() -> None:
    """And nobody who is not in it."""
    done = elsewhere(**{"1": 7})
    found = compared(waiting("1", 7, PAIR), done, elsewhere(), elsewhere())
    assert found is not None
    assert (found.verdict, found.ranks) == ("completed", (1,))


def test_what_a_rank_waits_in_tells_before_what_others_wait_in_for_it() -> None:
    """Rank 1 has left one out of its pair's, and stands at a barrier now, as the others do."""
    first = waiting("1", 7, PAIR)
    barrier = PendingCollective("0", "default_pg", 6, "barrier", 0, (0, 4, 1))
    others = [Collectives((barrier,), {"0": 6, **more}) for more in ({"1": 6}, {}, {})]
    ranks = dict(enumerate((first, *others)))
    found = compare(ranks, waiting=(0,))
    assert found is not None
    assert (found.verdict, found.ranks) == ("not_issued", (1,))
    assert compare(ranks).ranks == (0,)  # type: ignore[union-attr]
