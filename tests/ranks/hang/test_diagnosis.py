"""Each kind of hang from what ranks say of themselves, and where each row must be silent.

``python -m tests.ranks.hang.test_diagnosis`` writes what is told of each job to ``hangs.txt``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hooktrace.ranks.hang.collectives import Collectives, PendingCollective
from hooktrace.ranks.hang.diagnosis import RULES, Rule, diagnose
from hooktrace.ranks.hang.messages import RankStatus
from hooktrace.ranks.hang.snapshot import Snapshot, snapshot
from tests.ranks.hang.answers import (
    BACKWARD,
    EVALUATES,
    FUTURE,
    JOBS,
    NEARBY,
    NONE,
    STEP,
    Job,
    at_barrier,
    call,
    callback,
    in_unit,
    job,
    late,
    model,
    past_units,
    pending,
    status,
    thread,
    unit,
    waiting,
)

GOLDEN = Path(__file__).with_name("hangs.txt")


def told(name: str) -> str:
    """What is told of a job, whole."""
    found = diagnose(*JOBS[name].rounds())
    assert found is not None, name
    excused = ", excused" if found.excused else ""
    return f"{name}: {found.kind} of {list(found.ranks)}{excused}\n    {found.message}\n"


def test_what_is_told_of_each_job() -> None:
    """The kind, which ranks, whether these may take long, and the sentence with its fix."""
    assert "".join(map(told, JOBS)) == GOLDEN.read_text()


def seen(one: Job) -> Snapshot:
    """Where its ranks wait."""
    found = snapshot(*one.rounds())
    assert found is not None
    return found


@pytest.mark.parametrize(("kind", "clause"), NEARBY, ids=": ".join)
def test_a_row_is_silent_nearby(kind: str, clause: str) -> None:
    """Asked by itself, whatever the rows above would tell."""
    (rule,) = (rule for rule in RULES if rule.kind == kind and clause in rule.not_where)
    assert rule.finds(seen(NEARBY[kind, clause])) is None


def test_all_clauses_of_the_table_are_tried() -> None:
    """A row without one is the last, which always fits."""
    assert set(NEARBY) == {(rule.kind, clause) for rule in RULES for clause in rule.not_where}
    assert [rule.kind for rule in RULES if not rule.not_where] == ["unknown"]


def test_each_row_tells_one_of_the_jobs() -> None:
    """It is the first that fits there."""
    fitting = [told_by(one) for one in JOBS.values()]
    assert [rule for rule in RULES if rule not in fitting] == []


def told_by(one: Job) -> Rule:
    found = seen(one)
    rules = (rule for rule in RULES if rule.outside or found.call is not None)
    return next(rule for rule in rules if rule.finds(found) is not None)


def test_a_collective_outside_of_hooks_may_have_no_kind() -> None:
    """Where ranks stand in one that all have issued, nothing is known."""
    outside = seen(job(at_barrier(0), at_barrier(1)))
    assert [rule.kind for rule in RULES if rule.outside and rule.finds(outside)] == []


COMES = late(1, STEP, 2, thread={"doing": BACKWARD})
CALMS = {
    "moves": job(waiting(0), waiting(1), before=[waiting(rank, call(4)) for rank in (0, 1)]),
    "comes": job(waiting(0), COMES, before=[late(1)]),
    "nothing waits": job(late(0), late(1)),
    "another barrier": job(at_barrier(0), EVALUATES, before=[at_barrier(0, "a.py:1 f")]),
    "a barrier with all": job(at_barrier(0), at_barrier(1)),
}


@pytest.mark.parametrize("one", CALMS.values(), ids=CALMS)
def test_no_hang(one: Job) -> None:
    """Of two looks: who goes on is slow, and of who waits for whom nothing is known."""
    assert diagnose(*one.rounds()) is None


def test_one_that_nobody_knows() -> None:
    """A rank that is neither heard nor known to the channel is missing too."""
    first, last, _ = job(waiting(0), waiting(1), waiting(3)).rounds()
    found = diagnose(first, last, 4)
    assert found is not None
    assert (found.kind, found.ranks) == ("unknown", (2,))


def test_a_rank_that_came_between_two_looks_is_on_its_way() -> None:
    """It is in the hook, and will issue the collective that the others wait in."""
    come = (waiting(0, **pending(7)), waiting(1, FUTURE, **NONE))
    assert diagnose(*job(*come, before=[late(1, **NONE)]).rounds()) is None
    stays = diagnose(*job(*come).rounds())
    assert stays is not None
    assert (stays.kind, stays.ranks) == ("some_ranks_only", (1,))


def test_a_rank_that_stands_in_another_group_s_collective_is_only_waited_for() -> None:
    """Rank 1 waits itself, for a rank of that group; it is not among those that wait for it."""
    pair = PendingCollective("tp", "tp", 3, "barrier", 1, (1, 3, 1))
    in_pair = status(
        1,
        model(step=STEP, bucket=7),
        main=thread("g", collective="barrier"),
        collectives=Collectives((pair,), {"0": 6, "tp": 3}),
    )
    theirs = late(2, STEP, where="h", collectives=Collectives((), {"0": 7, "tp": 2}))
    found = diagnose(*job(at_barrier(0), in_pair, theirs).rounds())
    assert found is not None
    assert (found.ranks, found.waiting) == ((1,), (0,))
    assert found.message.startswith("rank 0 waits in barrier in ")


def test_a_rank_that_trains_another_model_while_others_wait_at_a_barrier() -> None:
    """Its calls move, so it is busy there."""
    trains = [
        status(
            1,
            model(step=STEP, bucket=7),
            model(call(bucket, model="b")),
            main=thread("f", doing=BACKWARD),
            **NONE,
        )
        for bucket in (0, 1)
    ]
    found = diagnose(*job(at_barrier(0), trains[1], before=trains[:1]).rounds())
    assert found is not None
    assert (found.kind, found.ranks, found.waiting) == ("busy", (1,), (0,))


def test_answers_travel() -> None:
    """A status is the same after its way over the channel."""
    whole = waiting(0, callbacks=(callback("a.py:1 f"),), **pending(3))
    encoded = msgspec.msgpack.encode(whole)
    assert msgspec.msgpack.decode(encoded, type=RankStatus) == whole


def test_ranks_outside_of_a_unit_s_group_have_no_part_in_it() -> None:
    """Hybrid sharding: each replica gathers in a group of its own."""
    own = unit(members=(2, 4, 1), group_size=2)
    there = [in_unit(0, unit(12)), past_units(1, order=4), in_unit(2, own)]
    found = diagnose(*job(*there, silent="stopped").rounds())
    assert found is not None
    assert (found.kind, found.ranks, found.waiting) == ("stopped", (3,), (2,))
    behind = diagnose(*job(*there, past_units(3, order=8)).rounds())
    assert behind is not None
    assert behind.ranks == (3,)


if __name__ == "__main__":
    GOLDEN.write_text("".join(map(told, JOBS)))
