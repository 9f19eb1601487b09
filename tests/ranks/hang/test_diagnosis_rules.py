"""Each row of the table: some run that it tells, and those that come near, where it is silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from hooktrace.ranks.channel.messages import State
from hooktrace.ranks.hang.collectives import PendingCollective
from hooktrace.ranks.hang.diagnosis import RULES, Rule
from hooktrace.ranks.hang.snapshot import Round, Snapshot, snapshot
from hooktrace.ranks.hang.status import RankStatus
from tests.ranks.hang import answers
from tests.ranks.hang.answers import (
    BACKWARD,
    FUTURE,
    NONE,
    SCATTER,
    STEP,
    after_5,
    at_barrier,
    call,
    callback,
    in_second,
    in_unit,
    late,
    late_here,
    model,
    past_units,
    pending,
    status,
    thread,
    unit,
    waiting,
)
from tests.ranks.hang.test_diagnosis import CASES


class Job(NamedTuple):
    """What two or three ranks say; ``before``: those that said something else a second ago."""

    said: Sequence[RankStatus]
    silent: State | None = None
    before: Sequence[RankStatus] = ()


def seen(job: Job) -> Snapshot:
    """Where its ranks wait."""
    quiet = [] if job.silent is None else [answers.silent(2, job.silent)]
    first = {one.rank: one for one in (*job.said, *job.before)}
    found = snapshot(Round.of(first.values(), quiet), Round.of(job.said, quiet), 3)
    assert found is not None
    return found


ENDED = {"ended_step": STEP, "ended_calls": 8}
WAITS = (waiting(0), waiting(1))
IN_BACKWARD = late_here("f", doing=BACKWARD)
HOOK = call(stage="hook")
MOVED = callback("b.py:1 f")
SECOND = model(model="model1", step=STEP, bucket=0)


def in_barrier(where: str = "f") -> RankStatus:
    return late(2, where=where, thread={"collective": "barrier"})


def in_group(rank: int, group: str, kind: str) -> RankStatus:
    """A rank whose opaque hook has issued the first collective of a group of its own."""
    one = PendingCollective(group, group, 1, kind, 8, (rank, rank + 1, 1))
    return waiting(rank, FUTURE, pending=(one,), issued={group: 1})


def calls_back(rank: int, *threads: Any) -> RankStatus:
    return waiting(rank, FUTURE, callbacks=threads)


def near(kind: str, clause: str, job: Job) -> Any:
    return pytest.param(kind, clause, job, id=f"{kind}: {clause}")


NEARBY = [
    near("died", "its process is there", Job(WAITS, "stopped")),
    near("stopped", "its process runs", Job(WAITS, "running")),
    near("network", "its host answers", Job(WAITS, "unknown")),
    near("interpreter_held", "nobody looks at its process", Job(WAITS, "unknown")),
    near("uneven_inputs", "its process runs", Job(WAITS, "running")),
    near("unknown", "its process is known", Job(WAITS, "ended")),
    near(
        "different_collectives",
        "its step goes on",
        Job([in_unit(0), past_units(1, order=7, ended_step=STEP - 1, ended_calls=8)]),
    ),
    near(
        "different_collectives",
        "it has made the call",
        Job([in_unit(0), past_units(1, order=9, ended_step=STEP, ended_calls=10)]),
    ),
    near(
        "different_collectives",
        "the model is not sharded",
        Job([*WAITS, status(2, model(step=STEP - 1, bucket=7, **ENDED))]),
    ),
    near("missing_bucket", "its backward pass runs", Job([*WAITS, IN_BACKWARD])),
    near(
        "missing_bucket",
        "that ran a moment ago",
        Job([*WAITS, late_here("f")], before=[IN_BACKWARD]),
    ),
    near(
        "missing_bucket",
        "it is in another call",
        Job(
            [*WAITS, status(2, model(call(3)), main=thread("f"))],
            before=[status(2, model(call(3, stage="hook")), main=thread("f"))],
        ),
    ),
    near(
        "missing_bucket",
        "it has had no bucket of the step",
        Job([*WAITS, late(2, STEP - 1, 3, where="f")]),
    ),
    near(
        "missing_bucket",
        "the model is sharded",
        Job([in_unit(0), status(1, model(step=STEP, bucket=1, unit=SCATTER), main=thread())]),
    ),
    near("raised", "it handles nothing", Job([*WAITS, late_here("f")])),
    near("uneven_inputs", "it trains", Job([*WAITS, IN_BACKWARD])),
    near("busy", "all that are behind wait themselves", Job([*WAITS, in_barrier()])),
    near(
        "different_collectives",
        "its thread moves",
        Job([*WAITS, in_barrier("g")], before=[in_barrier()]),
    ),
    near(
        "different_collectives",
        "the collective is a sharded model's",
        Job([*WAITS, status(2, model(unit(model="b")), main=thread(collective="all_gather"))]),
    ),
    near(
        "different_order",
        "those who wait have come to the other model's call",
        Job([status(0, model(call(0)), SECOND), in_second(2, STEP - 1)]),
    ),
    near("unknown", "nobody is behind", Job([in_second(0, STEP), in_second(2, STEP)])),
    near(
        "waits_in_callback",
        "the callback moves",
        Job([calls_back(0, MOVED)], before=[calls_back(0, callback("b.py:9 g"))]),
    ),
    near(
        "waits_in_callback",
        "it calls no wait",
        Job([calls_back(0, thread("b.py:1 f", foreign=True))]),
    ),
    near("unknown", "the hook runs", Job([waiting(0, HOOK)])),
    near(
        "some_ranks_only", "the hook is opaque", Job([waiting(0, call(5), call(6)), after_5(1, -1)])
    ),
    near(
        "some_ranks_only",
        "as many on all ranks",
        Job([waiting(0, call(5), call(6)), after_5(1, 1)]),
    ),
    near(
        "different_collectives",
        "all are in the same one",
        Job([in_unit(0), in_unit(1, unit(bucket=17))]),
    ),
    near(
        "different_collectives",
        "torch does not tell of a rank",
        Job([*(waiting(r, FUTURE, **pending(7, k)) for r, k in ((0, "a"), (1, "b"))), waiting(2)]),
    ),
    near(
        "different_collectives",
        "ranks are in different groups",
        Job([in_group(0, "a", "all_reduce"), in_group(1, "b", "broadcast")]),
    ),
    near(
        "some_ranks_only",
        "torch does not tell of a rank",
        Job([waiting(0, FUTURE, **pending(7)), waiting(1, FUTURE, **NONE), waiting(2, FUTURE)]),
    ),
    near(
        "some_ranks_only",
        "it is not in the group",
        Job([in_group(0, "a", "all_reduce"), waiting(1, FUTURE, **NONE)]),
    ),
    near("busy", "all ranks are in the hook's code", Job([waiting(0, HOOK), waiting(1, HOOK)])),
    near(
        "busy",
        "the code waits in a collective",
        Job([waiting(0, FUTURE), waiting(1, HOOK, main=thread(collective="all_reduce"))]),
    ),
    near(
        "never_completed",
        "torch does not tell of a rank",
        Job([waiting(0, FUTURE, **NONE), waiting(1, FUTURE)]),
    ),
    near(
        "never_completed",
        "a hook has not returned",
        Job([waiting(0, FUTURE, **NONE), waiting(1, HOOK, **NONE)]),
    ),
]


@pytest.mark.parametrize(("kind", "clause", "job"), NEARBY)
def test_a_row_is_silent_nearby(kind: str, clause: str, job: Job) -> None:
    """Asked by itself, whatever the rows above would tell."""
    (rule,) = (rule for rule in RULES if rule.kind == kind and clause in rule.not_where)
    assert rule.finds(seen(job)) is None


def test_all_clauses_of_the_table_are_tried() -> None:
    """A row without one is the last, which always fits."""
    tried = {(param.values[0], param.values[1]) for param in NEARBY}
    assert tried == {(rule.kind, clause) for rule in RULES for clause in rule.not_where}
    assert [rule.kind for rule in RULES if not rule.not_where] == ["unknown"]


def test_each_row_tells_one_of_the_cases() -> None:
    """It is the first that fits there."""
    told = [told_by(list(param.values[3]), list(param.values[4])) for param in CASES]
    assert [rule for rule in RULES if rule not in told] == []


def told_by(statuses: list[RankStatus], silent: list[Any]) -> Rule:
    answered = Round.of(statuses, silent)
    found = snapshot(answered, answered, len(statuses) + len(silent))
    assert found is not None
    fitting = (rule for rule in RULES if rule.outside or found.call is not None)
    return next(rule for rule in fitting if rule.finds(found) is not None)


def test_a_collective_outside_of_hooks_may_have_no_kind() -> None:
    """Where ranks stand in one that all have issued, nothing is known."""
    outside = seen(Job([at_barrier(0), at_barrier(1)]))
    assert [rule.kind for rule in RULES if rule.outside and rule.finds(outside)] == []
