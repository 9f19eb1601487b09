"""Each kind of hang from what ranks say of themselves, and what is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from hooktrace.ranks.channel.messages import Silent, State
from hooktrace.ranks.hang.collectives import PendingCollective
from hooktrace.ranks.hang.diagnosis import diagnose
from hooktrace.ranks.hang.messages import Hang
from hooktrace.ranks.hang.snapshot import Round
from hooktrace.ranks.hang.status import RankStatus
from tests.ranks.hang import answers
from tests.ranks.hang.answers import (
    BACKWARD,
    BOOM,
    EVALUATES,
    FUTURE,
    GATHER,
    MEETING,
    NONE,
    PAIR,
    SCATTER,
    STEP,
    STUCK,
    UNREDUCED,
    after_5,
    at_barrier,
    call,
    callback,
    in_first,
    in_second,
    in_unit,
    late,
    late_here,
    late_in,
    model,
    past_units,
    pending,
    status,
    thread,
    unit,
    waiting,
)


def of(*statuses: RankStatus, silent: Sequence[Silent] = (), size: int = 4) -> Hang:
    """Diagnose what does not move at all."""
    found = diagnose(Round.of(statuses, silent), Round.of(statuses, silent), size)
    assert found is not None
    return found


def others(*but: int) -> list[RankStatus]:
    """Those of four ranks that wait in bucket 5 of step 120."""
    return [waiting(rank) for rank in range(4) if rank not in but]


def case(
    kind: str, ranks: tuple[int, ...], said: str, *statuses: RankStatus, silent: str = ""
) -> Any:
    """A job that stands still: its kind, of which ranks, and a part of the sentence.

    ``silent``: how the processes of those of four ranks are that do not answer.
    """
    missing = sorted({*range(4)} - {one.rank for one in statuses})
    quiet = [
        answers.silent(rank, cast("State", state))
        for rank, state in zip(missing, silent.split(), strict=False)
    ]
    return pytest.param(kind, ranks, said, statuses, quiet, id=f"{kind}: {said or silent}")


def stands(rank: int, name: str, other: str) -> RankStatus:
    """A rank in a unit of a sharded model, which has not come to the other model's."""
    here = unit(0, model=name)
    there = model(model=other, step=STEP - 1, bucket=40, unit=SCATTER, order=10)
    at = thread("train.py:9 step", collective="all_gather_single")
    return status(rank, model(here, unit=here.unit, order=0), there, main=at)


def at_step_s_end(ended: int) -> list[RankStatus]:
    """Two ranks of a sharded model, one of which waits in a collective outside of its hooks."""
    known = model(step=STEP, bucket=3, unit=SCATTER, order=9, ended_step=ended)
    waits = status(0, known, main=thread(collective="all_reduce"), **pending(7))
    return [waits, status(1, known, main=thread("x.py:1 f"), pending=(), issued={"0": 6})]


OF_LATE_RANKS = [
    case(
        "busy",
        (2,),
        "bucket 5 of step 120 has waited 31 s on ranks 0, 1, 3 for rank 2, which is in "
        "`data.py:88 next_batch`, 1 step behind; ",
        *others(2),
        late(2),
    ),
    case(
        "different_order",
        (2,),
        "of model1, which ranks 0, 1 have not come to",
        *(in_first(0), in_first(1), in_second(2, STEP - 1)),
    ),
    case(
        "unknown",
        (1,),
        "of model1; why that waits is not known",
        status(0, model(call(0)), model(model="model1", step=STEP, bucket=0)),
        in_second(1, STEP - 1),
    ),
    # While backward runs no bucket is missing.
    case("busy", (2,), "2 buckets behind", *others(2), late_here("f.py:1 f", doing=BACKWARD)),
    case(
        "missing_bucket", (2,), "has had 4 buckets in step 120 and went", *others(2), late_here("f")
    ),
    # DDP finds that in the next forward pass.
    case(
        "missing_bucket",
        (2,),
        "",
        *others(2),
        late_here("f.py:1 f", exception=UNREDUCED, unreduced=True),
    ),
    case(
        "raised",
        (2,),
        f"raised {BOOM} and is now in `a:3",
        *others(2),
        late_in("a:3", exception=BOOM),
    ),
    # Who raised will not come.
    case(
        "raised",
        (2,),
        "rank 1 not there either",
        *others(1, 2),
        late(1),
        late_in("f", exception=BOOM),
    ),
    case("uneven_inputs", (2,), "", *others(2), late_in("main", doing=("ending",))),
    case(
        "different_collectives",
        (2,),
        "is in barrier() in `f`",
        *others(2),
        late_in("f", collective="barrier"),
    ),
    # Who waits at a barrier may wait for the one that is busy.
    case("busy", (1,), "", *others(1, 2), late(1), late_in("f", collective="barrier")),
    # Only those of the call's group count.
    case(
        "busy",
        (1,),
        "1 step behind",
        waiting(0, PAIR),
        late(1),
        status(2, model(step=5, bucket=0, model="other")),
    ),
]
OF_SILENT_RANKS = [
    case("died", (2,), "its process (pid 9 on node2) is gone", *others(2), silent="gone"),
    case("died", (2,), "is zombie", *others(2), silent="zombie"),
    case("stopped", (2,), "its process (pid 9 on node2) is stopped", *others(2), silent="stopped"),
    case("interpreter_held", (2,), "answers nothing, although its", *others(2), silent="running"),
    case("network", (2,), "cannot be reached", *others(2), silent="unreachable"),
    case("uneven_inputs", (2,), "in order", *others(2), silent="ended"),
    case("unknown", (2,), "nothing more is known", *others(2), silent="unknown"),
    # What is certain comes before what is likely, and a tracer that was closed early after both.
    case("died", (2,), "", *others(1, 2), silent="running gone"),
    case("busy", (1,), "", *others(1, 2), late(1), silent="ended"),
    case("busy", (1,), "", waiting(0, PAIR), late(1), silent="gone"),
]
OF_RANKS_IN_ONE_CALL = [
    case("unknown", (), "ranks 0 to 3 in all_reduce, which does not complete", *others()),
    # Without torch's own list nobody is blamed for that.
    case(
        "unknown",
        (),
        "rank 1 in all_gather, w",
        waiting(0),
        waiting(1, call(collective="all_gather")),
    ),
    # The order of models is the same there, so another reason is looked for.
    case("unknown", (), "of model1 has waited", *(in_second(rank, STEP) for rank in range(3))),
    case(
        "some_ranks_only",
        (1,),
        "1 collective on rank 0 and no collectives on rank 1",
        waiting(0, call(5), call(6)),
        after_5(1, 0),
    ),
]
OF_OPAQUE_HOOKS = [
    # Torch's own list tells what they have issued.
    case(
        "different_collectives",
        (1,),
        "ranks 0, 2 in all_reduce of 1,024 elements; rank 1 in broadcast",
        *(
            waiting(rank, FUTURE, **pending(7, kind))
            for rank, kind in enumerate(("all_reduce", "broadcast", "all_reduce"))
        ),
    ),
    # Of two that differ nobody knows which one is right.
    case(
        "different_collectives",
        (),
        "rank 0 in all_reduce of 1,024 elements; rank 1 in broadcast",
        waiting(0, FUTURE, **pending(7)),
        waiting(1, FUTURE, **pending(7, "broadcast")),
    ),
    case(
        "some_ranks_only",
        (1,),
        "its collective 7, which rank 1 has not",
        waiting(0, FUTURE, **pending(7)),
        waiting(1, FUTURE, **NONE),
    ),
    case("never_completed", (), "", waiting(0, FUTURE, **NONE), waiting(1, FUTURE, **NONE)),
    case("unknown", (), "torch does not tell", waiting(0, FUTURE), waiting(1, FUTURE)),
    case(
        "busy",
        (2,),
        "is in its hook, in `h.py:1 q`",
        waiting(0, FUTURE),
        waiting(2, call(stage="hook"), main=thread("h.py:1 q", doing=BACKWARD)),
        waiting(1, FUTURE),
    ),
    case(
        "waits_in_callback",
        (),
        "thread 7 in `powerSGD_hook.py:589 a`, thread 8 in `powerSGD",
        waiting(0, FUTURE, callbacks=STUCK),
        waiting(1, FUTURE),
    ),
    # Every such callback waits for a rank that is late.
    case("busy", (1,), "", waiting(0, FUTURE, callbacks=STUCK[:1]), late(1)),
]
OF_HOOKTRACES_PROBES = [
    case(
        "busy",
        (1,),
        "; probes of hooktrace's own wait there, before the hook is called; ",
        waiting(0, MEETING),
        late(1),
    ),
    case(
        "unknown",
        (),
        "its hook has not been called, since hooktrace's own probes do not begin",
        waiting(0, MEETING),
        waiting(1, MEETING),
    ),
    case(
        "unknown", (), "hooktrace's own probe", *(waiting(r, call(stage="probe")) for r in (0, 1))
    ),
]
LEFT = {"ended_step": STEP, "ended_calls": 8, "left_out": ("a", "b", "c")}
WITHOUT = "for rank 1, which has ended step 120 with 8 collectives, without a and b and others, wh"
MADE = "as the 5th blocks.2 all-gather (forward), where step 119 had blocks.1 ..."
OTHER_UNIT = unit(name=SCATTER, collective="reduce_scatter")
OF_SHARDED_MODELS = [
    # Buckets are numbered as each rank met them: 40 is not past 3.
    case(
        "busy",
        (1,),
        f"{GATHER} of step 120 has waited 31 s on rank 0 for rank 1, which is in "
        "`train.py:70 evaluate`, 1 collective behind; ",
        *(in_unit(0), past_units(1, order=8)),
    ),
    # Ranks that run other modules: who is in what, and whose step is not as the one before.
    case(
        "different_collectives",
        (1,),
        f"on ranks 0, 2, while rank 1 is in {SCATTER}: as the 10th collective of the step these do "
        f"not match; rank 1 made {MADE}; have all ranks run ",
        *(in_unit(0), in_unit(1, OTHER_UNIT, departure=MADE), in_unit(2)),
    ),
    case("different_collectives", (), "do not match; have", in_unit(0), in_unit(1, OTHER_UNIT)),
    # A step that ended with fewer collectives; the rank stands elsewhere, or in its next step.
    case("different_collectives", (1,), WITHOUT, in_unit(0), past_units(1, order=7, **LEFT)),
    case(
        "different_collectives",
        (1,),
        f"and is in {GATHER} of step 121",
        *(in_unit(0), in_unit(1, unit(0, step=STEP + 1), **LEFT)),
    ),
    # There is no ``join`` of DDP's there.
    case(
        "uneven_inputs",
        (1,),
        ", 1 step behind; give all ranks as many batches",
        in_unit(0),
        status(1, *past_units(1, STEP - 1).models, main=thread(doing=("ending",))),
    ),
    case(
        "different_order",
        (1,),
        f"which waits in {GATHER} of step 120 of b, which rank 0 has not come to",
        *(stands(0, "a", "b"), stands(1, "b", "a")),
    ),
    # FSDP's own collectives, or an evaluation that follows.
    case("busy", (1,), ", in step 120,", *at_step_s_end(STEP - 1)),
    case("busy", (1,), ", after step 120,", *at_step_s_end(STEP)),
]


def late_at_barrier(where: str = "f", **known: Any) -> RankStatus:
    """Rank 1, which has not come to the barrier in which rank 0 waits."""
    return late(1, STEP, where=where, thread=known, pending=(), issued={"0": 6})


OF_BARRIERS = [
    case(
        "busy",
        (2,),
        "ranks 0, 1 wait in barrier in `eval.py:3 run`, after step 120, for rank 2, which is in "
        "`eval.py:9 score`; ",
        *(at_barrier(0), at_barrier(1)),
        late(2, STEP, where="eval.py:9 score", pending=(), issued={"0": 6}),
    ),
    case(
        "raised",
        (1,),
        f"step 120, for rank 1, which raised {BOOM} and is now in `f`; ",
        *(at_barrier(0), late_at_barrier(exception=BOOM)),
    ),
    case(
        "uneven_inputs",
        (1,),
        "which ends its training in `f`; ",
        *(at_barrier(0), late_at_barrier(doing=("ending",))),
    ),
    case(
        "busy",
        (1,),
        "which is in `f` and saves there; ",
        *(at_barrier(0), late_at_barrier(doing=("saving",))),
    ),
    case(
        "different_collectives",
        (1,),
        "which is in broadcast() in `f`; ",
        *(at_barrier(0), late_at_barrier(collective="broadcast")),
    ),
    case("stopped", (1,), "", at_barrier(0), silent="stopped"),
]
CASES = [
    *OF_LATE_RANKS,
    *OF_SILENT_RANKS,
    *OF_RANKS_IN_ONE_CALL,
    *OF_OPAQUE_HOOKS,
    *OF_HOOKTRACES_PROBES,
    *OF_SHARDED_MODELS,
    *OF_BARRIERS,
]


@pytest.mark.parametrize(("kind", "ranks", "said", "statuses", "silent"), CASES)
def test_kinds(
    kind: str, ranks: tuple[int, ...], said: str, statuses: Any, silent: list[Silent]
) -> None:
    """The kind, of which ranks, where that is known, and what is said of it."""
    found = of(*statuses, silent=silent, size=len(statuses) + len(silent))
    assert (found.kind, found.ranks) == (kind, ranks)
    assert said in found.message


def test_many_ranks() -> None:
    """Runs of ranks are shortened, and equal places said once."""
    found = of(*(waiting(rank) for rank in range(63)), late(63), late(64), size=65)
    assert "on ranks 0 to 62 for ranks 63, 64, each of which is in `data.py:88" in found.message


def test_one_that_nobody_knows() -> None:
    """A rank that is neither heard nor known to the channel is missing too."""
    found = of(*others(2))
    assert (found.kind, found.ranks) == ("unknown", (2,))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"thread": {"doing": ("saving",)}}, "saves there"),
        ({"thread": {"doing": ("compiling",)}}, "compiles there"),
        ({"paused": True}, "has paused the watchdog"),
    ],
)
def test_excused(more: dict[str, Any], said: str) -> None:
    """What is known to take long is marked, unless another rank is late too."""
    found = of(*others(2), late(2, **more))
    assert (found.kind, found.excused) == ("busy", True)
    assert said in found.message
    assert not of(*others(1, 2), late(1), late(2, **more)).excused


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ([waiting(0, call(4)), waiting(1, call(4))], [waiting(0), waiting(1)]),
        ([waiting(0), late(1)], [waiting(0), late(1, STEP, 2, thread={"doing": BACKWARD})]),
        ([late(0), late(1)], [late(0), late(1)]),
        ([at_barrier(0, "a.py:1 f"), EVALUATES], [at_barrier(0), EVALUATES]),
        ([at_barrier(0), at_barrier(1)], [at_barrier(0), at_barrier(1)]),
    ],
    ids=["moves", "comes", "nothing waits", "another barrier", "a barrier with all"],
)
def test_no_hang(first: list[RankStatus], last: list[RankStatus]) -> None:
    """Of two looks: who goes on is slow, and of who waits for whom nothing is known."""
    assert diagnose(Round.of(first), Round.of(last), 2) is None


@pytest.mark.parametrize(
    "statuses",
    [
        (waiting(0, FUTURE), waiting(1, call(stage="hook"), main=thread(doing=("compiling",)))),
        (waiting(0, FUTURE), waiting(1, call(stage="hook"), paused=True)),
        (waiting(0), late(1, thread={"doing": ("probe",)}, paused=True)),
        (waiting(0), status(1, model(step=STEP - 1, bucket=7), paused=True)),
    ],
    ids=["the hook compiles", "paused in the hook", "paused in a probe", "nothing else known"],
)
def test_an_excuse_counts_wherever_a_rank_is_busy(statuses: Sequence[RankStatus]) -> None:
    """In the hook's own code too, and where its threads are not known."""
    found = of(*statuses, size=2)
    assert (found.kind, found.ranks, found.excused) == ("busy", (1,), True)


@pytest.mark.parametrize("known", [{"exception": BOOM}, {"doing": ("ending", "saving")}])
def test_a_rank_that_will_not_come_has_no_excuse(known: dict[str, Any]) -> None:
    """Who raised, or ends, does not come ten times as long either."""
    found = of(waiting(0), late(1, thread=known, paused=True), size=2)
    assert found.kind in {"raised", "uneven_inputs"}
    assert not found.excused


def test_a_rank_that_saved_a_moment_ago_is_excused() -> None:
    """Between two looks nobody knows how long it has had for anything else."""
    first = Round.of([waiting(0), late(1, thread={"doing": ("saving",)})])
    found = diagnose(first, Round.of([waiting(0), late(1)]), 2)
    assert found is not None
    assert (found.kind, found.excused) == ("busy", True)
    assert "saves" not in found.message


def test_a_rank_that_came_between_two_looks_is_on_its_way() -> None:
    """It is in the hook, and will issue the collective that the others wait in."""
    first = Round.of([waiting(0, **pending(7)), late(1, **NONE)])
    come = Round.of([waiting(0, **pending(7)), waiting(1, FUTURE, **NONE)])
    assert diagnose(first, come, 2) is None
    stays = diagnose(come, come, 2)
    assert stays is not None
    assert (stays.kind, stays.ranks) == ("some_ranks_only", (1,))


def test_a_rank_that_stands_in_another_group_s_collective_is_only_waited_for() -> None:
    """Rank 1 waits itself, for a rank of that group; it is not among those that wait for it."""
    pair = PendingCollective("tp", "tp", 3, "barrier", 1, (1, 3, 1))
    in_pair = status(
        1,
        model(step=STEP, bucket=7),
        main=thread("g", collective="barrier"),
        pending=(pair,),
        issued={"0": 6, "tp": 3},
    )
    theirs = late(2, STEP, where="h", pending=(), issued={"0": 7, "tp": 2})
    found = of(at_barrier(0), in_pair, theirs, size=3)
    assert (found.ranks, found.waiting) == ((1,), (0,))
    assert found.message.startswith("rank 0 waits in barrier in ")


def test_a_rank_that_trains_another_model_while_others_wait_at_a_barrier() -> None:
    """Its calls move, so it is busy there."""

    def trains(bucket: int) -> RankStatus:
        return status(
            1,
            model(step=STEP, bucket=7),
            model(call(bucket, model="b")),
            main=thread("f", doing=BACKWARD),
            **NONE,
        )

    first, last = Round.of([at_barrier(0), trains(0)]), Round.of([at_barrier(0), trains(1)])
    found = diagnose(first, last, 2)
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
    silent = [answers.silent(3, "stopped")]
    there = [in_unit(0, unit(12)), past_units(1, order=4), in_unit(2, own)]
    found = of(*there, silent=silent)
    assert (found.kind, found.ranks, found.waiting) == ("stopped", (3,), (2,))
    assert of(*there, past_units(3, order=8)).ranks == (3,)
