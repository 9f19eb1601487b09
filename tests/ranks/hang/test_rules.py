"""Each row of the table: a run in which it fits, and those that come near, in which it must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from hooktrace.ranks.channel.messages import State
from hooktrace.ranks.hang.collectives import PendingCollective
from hooktrace.ranks.hang.rules import RULES, Rule
from hooktrace.ranks.hang.snapshot import Round, Snapshot, snapshot
from hooktrace.ranks.hang.status import RankStatus
from tests.ranks.hang import answers
from tests.ranks.hang.answers import (
    BACKWARD,
    STEP,
    call,
    callback,
    late,
    model,
    pending,
    status,
    thread,
    waiting,
)
from tests.ranks.hang.test_diagnosis import (
    BOOM,
    FUTURE,
    GATHERS,
    NONE,
    SCATTER,
    after_5,
    at_barrier,
    in_first,
    in_second,
    in_unit,
    late_here,
    past_units,
    unit,
)


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
GROUP = {"issued": {"0": 6}, "pending": ()}
OTHER = unit(name=SCATTER)
SECOND = model(model="model1", step=STEP, bucket=0)


def in_barrier(where: str = "f") -> RankStatus:
    return late(2, where=where, thread={"collective": "barrier"})


def in_group(rank: int, group: str, kind: str) -> RankStatus:
    """A rank whose opaque hook has issued the first collective of a group of its own."""
    one = PendingCollective(group, group, 1, kind, 8, (rank, rank + 1, 1))
    return waiting(rank, FUTURE, pending=(one,), issued={group: 1})


def calls_back(rank: int, *threads: Any) -> RankStatus:
    return waiting(rank, FUTURE, callbacks=threads)


def of_process(kind: str, clause: str, hit: State, near: State) -> Any:
    return row(kind, clause, Job(WAITS, hit), Job(WAITS, near))


def row(kind: str, clause: str, hit: Job, near: Job) -> Any:
    return pytest.param(kind, clause, hit, near, id=f"{kind}: {clause}")


ROWS = [
    of_process("died", "its process is there", "gone", "stopped"),
    of_process("stopped", "its process runs", "stopped", "running"),
    of_process("network", "its host answers", "unreachable", "unknown"),
    of_process("interpreter_held", "nobody looks at its process", "running", "unknown"),
    of_process("uneven_inputs", "its process runs", "ended", "running"),
    of_process("unknown", "its process is known", "unknown", "ended"),
    row(
        "different_collectives",
        "its step goes on",
        Job([in_unit(0), past_units(1, order=7, **ENDED)]),
        Job([in_unit(0), past_units(1, order=7, ended_step=STEP - 1, ended_calls=8)]),
    ),
    row(
        "different_collectives",
        "it has made the call",
        Job([in_unit(0), past_units(1, order=9, **ENDED)]),
        Job([in_unit(0), past_units(1, order=9, ended_step=STEP, ended_calls=10)]),
    ),
    row(
        "different_collectives",
        "the model is not sharded",
        Job([in_unit(0), past_units(1, order=7, **ENDED)]),
        Job([*WAITS, status(2, model(step=STEP - 1, bucket=7, **ENDED))]),
    ),
    row(
        "missing_bucket",
        "its backward pass runs",
        Job([*WAITS, late_here("f")]),
        Job([*WAITS, IN_BACKWARD]),
    ),
    row(
        "missing_bucket",
        "that ran a moment ago",
        Job([*WAITS, late_here("f")]),
        Job([*WAITS, late_here("f")], before=[IN_BACKWARD]),
    ),
    row(
        "missing_bucket",
        "it is in another call",
        Job([*WAITS, late_here("f")]),
        Job(
            [*WAITS, status(2, model(call(3)), main=thread("f"))],
            before=[status(2, model(call(3, stage="hook")), main=thread("f"))],
        ),
    ),
    row(
        "missing_bucket",
        "it has had no bucket of the step",
        Job([*WAITS, late_here("f")]),
        Job([*WAITS, late(2, STEP - 1, 3, where="f")]),
    ),
    row(
        "missing_bucket",
        "the model is sharded",
        Job([*WAITS, late_here("f")]),
        Job([in_unit(0), status(1, model(step=STEP, bucket=1, unit=SCATTER), main=thread())]),
    ),
    row(
        "raised",
        "it handles nothing",
        Job([*WAITS, late_here("f", exception=BOOM)]),
        Job([*WAITS, late_here("f")]),
    ),
    row(
        "uneven_inputs",
        "it trains",
        Job([*WAITS, late_here("f", doing=("ending",))]),
        Job([*WAITS, IN_BACKWARD]),
    ),
    row(
        "busy",
        "all that are behind wait themselves",
        Job([waiting(0), late(1), in_barrier()]),
        Job([*WAITS, in_barrier()]),
    ),
    row(
        "different_collectives",
        "its thread moves",
        Job([*WAITS, in_barrier()]),
        Job([*WAITS, in_barrier("g")], before=[in_barrier()]),
    ),
    row(
        "different_collectives",
        "the collective is a sharded model's",
        Job([*WAITS, in_barrier()]),
        Job([*WAITS, status(2, model(unit(model="b")), main=thread(collective="all_gather"))]),
    ),
    row(
        "different_order",
        "those who wait have come to the other model's call",
        Job([in_first(0), in_second(2, STEP - 1)]),
        Job([status(0, model(call(0)), SECOND), in_second(2, STEP - 1)]),
    ),
    row(
        "unknown",
        "nobody is behind",
        Job([waiting(0), in_second(2, STEP - 1)]),
        Job([in_second(0, STEP), in_second(2, STEP)]),
    ),
    row(
        "waits_in_callback",
        "the callback moves",
        Job([calls_back(0, MOVED)]),
        Job([calls_back(0, MOVED)], before=[calls_back(0, callback("b.py:9 g"))]),
    ),
    row(
        "waits_in_callback",
        "it calls no wait",
        Job([calls_back(0, MOVED)]),
        Job([calls_back(0, thread("b.py:1 f", foreign=True))]),
    ),
    row(
        "unknown", "the hook runs", Job([waiting(0, call(stage="probe"))]), Job([waiting(0, HOOK)])
    ),
    row(
        "some_ranks_only",
        "the hook is opaque",
        Job([waiting(0, call(5), call(6)), after_5(1, 0)]),
        Job([waiting(0, call(5), call(6)), after_5(1, -1)]),
    ),
    row(
        "some_ranks_only",
        "as many on all ranks",
        Job([waiting(0, call(5), call(6)), after_5(1, 0)]),
        Job([waiting(0, call(5), call(6)), after_5(1, 1)]),
    ),
    row(
        "different_collectives",
        "all are in the same one",
        Job([in_unit(0), in_unit(1, OTHER)]),
        Job([in_unit(0), in_unit(1, unit(bucket=17))]),
    ),
    row(
        "different_collectives",
        "ranks are in different rounds",
        Job([waiting(0), waiting(1, GATHERS[0])]),
        Job([waiting(0, call(rounds=1)), waiting(1, GATHERS[0])]),
    ),
    row(
        "different_collectives",
        "what is gathered differs in size",
        Job([waiting(0), waiting(1, call(wire_bytes=8))]),
        Job([waiting(0, GATHERS[0]), waiting(1, GATHERS[1])]),
    ),
    row(
        "different_collectives",
        "torch does not tell of a rank",
        Job([waiting(0, FUTURE, **pending(7)), waiting(1, FUTURE, **pending(7, "broadcast"))]),
        Job([*(waiting(r, FUTURE, **pending(7, k)) for r, k in ((0, "a"), (1, "b"))), waiting(2)]),
    ),
    row(
        "different_collectives",
        "ranks are in different groups",
        Job([waiting(0, FUTURE, **pending(7)), waiting(1, FUTURE, **pending(7, "broadcast"))]),
        Job([in_group(0, "a", "all_reduce"), in_group(1, "b", "broadcast")]),
    ),
    row(
        "some_ranks_only",
        "torch does not tell of a rank",
        Job([waiting(0, FUTURE, **pending(7)), waiting(1, FUTURE, **NONE)]),
        Job([waiting(0, FUTURE, **pending(7)), waiting(1, FUTURE, **NONE), waiting(2, FUTURE)]),
    ),
    row(
        "some_ranks_only",
        "it is not in the group",
        Job([waiting(0, FUTURE, **pending(7)), waiting(1, FUTURE, **NONE)]),
        Job([in_group(0, "a", "all_reduce"), waiting(1, FUTURE, **NONE)]),
    ),
    row(
        "busy",
        "all ranks are in the hook's code",
        Job([waiting(0, FUTURE), waiting(1, HOOK)]),
        Job([waiting(0, HOOK), waiting(1, HOOK)]),
    ),
    row(
        "busy",
        "the code waits in a collective",
        Job([waiting(0, FUTURE), waiting(1, HOOK)]),
        Job([waiting(0, FUTURE), waiting(1, HOOK, main=thread(collective="all_reduce"))]),
    ),
    row(
        "never_completed",
        "torch does not tell of a rank",
        Job([waiting(0, FUTURE, **NONE), waiting(1, FUTURE, **NONE)]),
        Job([waiting(0, FUTURE, **NONE), waiting(1, FUTURE)]),
    ),
    row(
        "never_completed",
        "a hook has not returned",
        Job([waiting(0, FUTURE, **NONE), waiting(1, FUTURE, **NONE)]),
        Job([waiting(0, FUTURE, **NONE), waiting(1, HOOK, **NONE)]),
    ),
]


def of(kind: str, clause: str) -> Rule:
    """The row of a kind that must be silent in such a run."""
    (found,) = (rule for rule in RULES if rule.kind == kind and clause in rule.not_where)
    return found


@pytest.mark.parametrize(("kind", "clause", "hit", "near"), ROWS)
def test_a_row_fits_and_is_silent_nearby(kind: str, clause: str, hit: Job, near: Job) -> None:
    """Asked by itself, whatever the rows above would tell."""
    finds = of(kind, clause).finds
    assert finds(seen(hit)) is not None
    assert finds(seen(near)) is None


def test_all_clauses_of_the_table_are_tried() -> None:
    """A row without one is the last, which always fits."""
    tried = {(param.values[0], param.values[1]) for param in ROWS}
    assert tried == {(rule.kind, clause) for rule in RULES for clause in rule.not_where}
    assert [rule.kind for rule in RULES if not rule.not_where] == ["unknown"]


def test_a_call_always_has_a_kind_and_a_collective_outside_of_hooks_may_have_none() -> None:
    """Where ranks stand in one that all have issued, nothing is known."""
    assert RULES[-1].finds(seen(Job(WAITS))) is not None
    outside = seen(Job([at_barrier(0), at_barrier(1)]))
    assert [rule.kind for rule in RULES if rule.outside and rule.finds(outside)] == []
