"""Each kind of hang from what ranks say of themselves, and what is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from hooktrace.ranks.channel.silent_rank import SilentRank
from hooktrace.ranks.hang.conclude import HangDiagnosis
from hooktrace.ranks.hang.diagnosis import diagnose
from hooktrace.ranks.hang.status import CallInFlight, RankStatus
from hooktrace.ranks.hang.view import Statuses
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


def of(*statuses: RankStatus, silent: Iterable[SilentRank] = (), size: int = 4) -> HangDiagnosis:
    """Diagnose what does not move at all."""
    silent = list(silent)
    found = diagnose(Statuses.of(statuses, silent), Statuses.of(statuses, silent), size)
    assert found is not None
    return found


def others(*but: int) -> list[RankStatus]:
    """Those of four ranks that wait in bucket 5 of step 120."""
    return [waiting(rank) for rank in range(4) if rank not in but]


def test_busy() -> None:
    """The sentence says which call, how long, who waits for whom, and where that one is."""
    found = of(*others(2), late(2))
    assert (found.kind, found.ranks, found.waiting) == ("busy", (2,), (0, 1, 3))
    assert (found.step, found.bucket, found.excused) == (STEP, 5, False)
    assert found.message.startswith(
        "bucket 5 of step 120 has waited 31 s on ranks 0, 1, 3 for rank 2, which is in "
        "`data.py:88 next_batch`, 1 step behind; "
    )


def test_busy_within_the_step() -> None:
    """Backward is slow there: no bucket is missing while it runs."""
    found = of(*others(2), late(2, STEP, 3, thread={"doing": BACKWARD}))
    assert found.kind == "busy"
    assert "2 buckets behind" in found.message


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"thread": {"doing": ("saving",)}}, "saves there"),
        ({"thread": {"doing": ("compiling",)}}, "compiles there"),
        ({"paused": True}, "has paused the watchdog"),
    ],
)
def test_excused(more: dict[str, object], said: str) -> None:
    """What is known to take long is marked."""
    found = of(*others(2), late(2, **more))
    assert (found.kind, found.excused) == ("busy", True)
    assert said in found.message


def test_a_rank_that_saved_a_moment_ago_is_excused() -> None:
    """Between two looks nobody knows how long it has had for anything else."""
    first = Statuses.of([waiting(0), late(1, thread={"doing": ("saving",)})])
    found = diagnose(first, Statuses.of([waiting(0), late(1)]), 2)
    assert found is not None
    assert (found.kind, found.excused) == ("busy", True)
    assert "saves" not in found.message


def test_one_of_two_is_excused() -> None:
    """The other one is not."""
    assert not of(waiting(0), waiting(3), late(1, paused=True), late(2)).excused


@pytest.mark.parametrize(
    ("state", "kind", "said"),
    [
        ("gone", "died", "its process (pid 9 on node2) is gone"),
        ("zombie", "died", "is zombie"),
        ("stopped", "stopped", "stands still: its process (pid 9 on node2) is stopped"),
        ("running", "interpreter_held", "answers nothing, although its process"),
        ("unreachable", "network", "cannot be reached"),
        ("ended", "uneven_inputs", "in order"),
        ("unknown", "unknown", "nothing more is known"),
    ],
)
def test_silent(state: str, kind: str, said: str) -> None:
    """What the system tells of the process of a rank that does not answer."""
    silent = SilentRank(rank=2, pid=9, host="node2", state=state)
    found = of(*others(2), silent=[silent])
    assert (found.kind, found.ranks) == (kind, (2,))
    assert said in found.message


def test_one_that_nobody_knows() -> None:
    """A rank that is neither heard nor known to the channel is missing too."""
    found = of(*others(2))
    assert (found.kind, found.ranks) == ("unknown", (2,))


def test_certain_before_likely() -> None:
    """A rank that died is why another one's interpreter does not matter."""
    silent = [SilentRank(rank=1, state="running"), SilentRank(rank=2, state="gone")]
    assert of(*others(1, 2), silent=silent).kind == "died"


def test_ended_and_busy() -> None:
    """One closed its tracer early, which is none of the hang's business."""
    found = of(*others(1, 2), late(1), silent=[SilentRank(rank=2, state="ended")])
    assert (found.kind, found.ranks) == ("busy", (1,))


def test_raised() -> None:
    """The exception is told with where the rank is now."""
    error = "ValueError: boom at loss.py:12"
    found = of(*others(2), late(2, where="log.py:3 report", thread={"exception": error}))
    assert (found.kind, found.ranks) == ("raised", (2,))
    assert "which raised ValueError: boom at loss.py:12 and is now in `log.py:3" in found.message


def test_raised_before_busy() -> None:
    """Two are late: who raised will not come."""
    found = of(waiting(0), waiting(3), late(1), late(2, thread={"exception": "E at a.py:1"}))
    assert (found.kind, found.ranks) == ("raised", (2,))
    assert "rank 1 not there either" in found.message


def test_missing_bucket() -> None:
    """It had a part of the step's buckets, and its backward pass is over."""
    found = of(*others(2), late(2, STEP, 3, where="train.py:60 optimize"))
    assert (found.kind, found.ranks) == ("missing_bucket", (2,))
    assert "has had 4 buckets in step 120 and went on" in found.message


def test_missing_bucket_that_torch_found() -> None:
    """DDP raises in the next forward pass, and says why."""
    error = "RuntimeError: Expected to have finished reduction in the prior iteration at t.py:1"
    found = of(*others(2), late(2, STEP, 3, thread={"exception": error}))
    assert found.kind == "missing_bucket"


def test_backward_ended_between_the_rounds() -> None:
    """A moment after its backward pass a rank cannot be said to have left a bucket out."""
    first = [*others(2), late(2, STEP, 3, thread={"doing": BACKWARD})]
    last = [*others(2), late(2, STEP, 3)]
    found = diagnose(Statuses.of(first), Statuses.of(last), 4)
    assert found is not None
    assert found.kind == "busy"


def test_uneven_inputs() -> None:
    """A rank is at the end of its training, a step behind."""
    found = of(*others(2), late(2, where="train.py:99 main", thread={"doing": ("ending",)}))
    assert (found.kind, found.ranks) == ("uneven_inputs", (2,))


def test_in_another_collective() -> None:
    """A rank waits at a barrier of its own."""
    found = of(*others(2), late(2, where="t.py:7 f", thread={"doing": ("in barrier",)}))
    assert (found.kind, found.ranks) == ("different_collectives", (2,))
    assert "is in barrier() in `t.py:7 f`" in found.message


def test_in_another_collective_for_one_that_is_busy() -> None:
    """Who waits itself may wait for the one that does not."""
    found = of(waiting(0), waiting(3), late(1), late(2, thread={"doing": ("in barrier",)}))
    assert (found.kind, found.ranks) == ("busy", (1,))


def in_second(rank: int, first_step: int) -> RankStatus:
    """A rank in the backward pass of a second model, whose first model stands at a step."""
    first = model(step=first_step, bucket=7)
    second = model(call(0, STEP, model="model1"))
    return status(rank, first, second, main=thread(doing=BACKWARD))


def in_first(rank: int) -> RankStatus:
    """A rank in the backward pass of the first model."""
    second = model(step=STEP - 1, bucket=7, model="model1")
    return status(rank, model(call(0)), second, main=thread(doing=BACKWARD))


def test_different_order() -> None:
    """Each waits in a call that the other has not come to."""
    found = of(in_first(0), in_first(1), in_second(2, STEP - 1), size=3)
    assert found.kind == "different_order"
    assert "of model0 has waited" in found.message
    assert "of model1, which ranks 0, 1 have not come to" in found.message


def test_both_wait_in_the_second_model() -> None:
    """The order is the same there, so another reason is looked for."""
    found = of(in_second(0, STEP), in_second(1, STEP), in_second(2, STEP), size=3)
    assert (found.kind, found.model) == ("unknown", "model1")


def test_callbacks() -> None:
    """The threads are named, by where they wait."""
    stuck = (callback("powerSGD_hook.py:589 a", 7), callback("powerSGD_hook.py:611 b", 8))
    opaque = call(0, stage="future")
    found = of(waiting(0, opaque, callbacks=stuck), waiting(1, opaque), size=2)
    assert (found.kind, found.ranks) == ("waits_in_callback", ())
    assert "thread 7 in `powerSGD_hook.py:589 a`, thread 8 in `powerSGD" in found.message


def test_callbacks_that_wait_for_a_late_rank() -> None:
    """Every such callback waits then; the reason is the rank that is late."""
    stuck = (callback("powerSGD_hook.py:589 a"),)
    found = of(waiting(0, call(stage="future"), callbacks=stuck), late(1), size=2)
    assert (found.kind, found.ranks) == ("busy", (1,))


def test_some_ranks_only() -> None:
    """One has finished a bucket without the collective that another waits for."""
    done = status(1, model(call(6), finished=((5, 0),)), main=thread(doing=BACKWARD))
    found = of(waiting(0, call(5), call(6)), done, size=2)
    assert (found.kind, found.ranks) == ("some_ranks_only", (1,))
    assert "for bucket 5 the hook issued 1 collective on rank 0 and no collectives on rank 1" in (
        found.message
    )


def test_a_rank_that_came_between_two_looks_is_on_its_way() -> None:
    """It is in the hook, and will issue the collective that the others wait in."""
    none: dict[str, Any] = {"pending": (), "issued": {"0": 6}}
    first = Statuses.of([waiting(0, **pending(7)), late(1, **none)])
    come = Statuses.of([waiting(0, **pending(7)), waiting(1, call(stage="future"), **none)])
    assert diagnose(first, come, 2) is None
    stays = diagnose(come, come, 2)
    assert stays is not None
    assert (stays.kind, stays.ranks) == ("some_ranks_only", (1,))


def test_a_result_that_came_to_one_first() -> None:
    """The same number of collectives: it is not known why one has its result and one has not."""
    done = status(1, model(call(6), finished=((5, 1),)), main=thread(doing=BACKWARD))
    found = of(waiting(0, call(5), call(6)), done, size=2)
    assert found.kind == "unknown"


def test_different_collectives() -> None:
    """For the same bucket."""
    gather = call(collective="all_gather", wire_bytes=8)
    found = of(waiting(0), waiting(1), waiting(2, gather), size=3)
    assert (found.kind, found.ranks) == ("different_collectives", (2,))
    assert "ranks 0, 1 in all_reduce of 4,096 bytes; rank 2 in all_gather" in found.message


def test_gathered_payloads_may_differ() -> None:
    """Each rank gathers as much as it has."""
    sizes = [call(collective="all_gather", wire_bytes=size) for size in (8, 12)]
    assert of(*(waiting(i, one) for i, one in enumerate(sizes)), size=2).kind == "unknown"


def test_opaque_ranks_in_different_collectives() -> None:
    """Torch's own list tells what an opaque hook has issued."""
    opaque = call(stage="future")
    ranks = [waiting(0, opaque, **pending(7)), waiting(1, opaque, **pending(7, "broadcast"))]
    found = of(*ranks, size=2)
    assert found.kind == "different_collectives"
    assert "rank 0 in all_reduce of 1,024 elements; rank 1 in broadcast" in found.message


def test_opaque_on_some_ranks_only() -> None:
    """A collective that a rank has not issued, though its hook has returned."""
    opaque = call(stage="future")
    none = {"pending": (), "issued": {"0": 6}}
    found = of(waiting(0, opaque, **pending(7)), waiting(1, opaque, **none), size=2)
    assert (found.kind, found.ranks) == ("some_ranks_only", (1,))
    assert "its collective 7, which rank 1 has not issued" in found.message


def test_never_completed() -> None:
    """Nothing is pending, and the hook has returned everywhere."""
    none = {"pending": (), "issued": {"0": 6}}
    found = of(*(waiting(rank, call(stage="future"), **none) for rank in range(2)), size=2)
    assert (found.kind, found.ranks) == ("never_completed", ())


def test_opaque_where_torch_tells_nothing() -> None:
    """It may be anything."""
    found = of(*(waiting(rank, call(stage="future")) for rank in range(2)), size=2)
    assert found.kind == "unknown"
    assert "torch does not tell" in found.message


def test_all_in_the_same() -> None:
    """The backend does not complete it; whether that is the network is not known."""
    found = of(*(waiting(rank) for rank in range(4)))
    assert found.kind == "unknown"
    assert "all have issued all_reduce, it does not complete" in found.message


def test_in_the_hook() -> None:
    """One rank's hook has not returned: its own code is where it is."""
    inside = waiting(2, call(stage="hook"), main=thread("hook.py:12 quantize", doing=BACKWARD))
    found = of(waiting(0, call(stage="future")), inside, waiting(1, call(stage="future")), size=3)
    assert (found.kind, found.ranks) == ("busy", (2,))
    assert "is in its hook, in `hook.py:12 quantize`" in found.message


def test_where_hooktraces_probes_meet() -> None:
    """Nobody's hook has been called: it is said who waits there, and for whom if anybody knows."""
    found = of(waiting(0, call(stage="meeting")), late(1), size=2)
    assert (found.kind, found.ranks) == ("busy", (1,))
    assert "; probes of hooktrace's own wait there, before the hook is called; " in found.message
    both = of(*(waiting(rank, call(stage="meeting")) for rank in range(2)), size=2)
    assert both.kind == "unknown"
    assert "its hook has not been called, since hooktrace's own probes do not begin" in both.message


def test_hooktraces_own_probe() -> None:
    """It is not the user's fault."""
    found = of(*(waiting(rank, call(stage="probe")) for rank in range(2)), size=2)
    assert found.kind == "unknown"
    assert "hooktrace's own probe" in found.message


def test_a_call_that_moved() -> None:
    """Another bucket than a second ago: it is slow, and goes on."""
    first = Statuses.of([waiting(0, call(4)), waiting(1, call(4))])
    assert diagnose(first, Statuses.of([waiting(0, call(5)), waiting(1, call(5))]), 2) is None


def test_a_late_rank_that_comes() -> None:
    """It has begun the step meanwhile."""
    first = Statuses.of([waiting(0), late(1)])
    last = Statuses.of([waiting(0), late(1, STEP, 2, thread={"doing": BACKWARD})])
    assert diagnose(first, last, 2) is None


def test_nothing_waits() -> None:
    """Ranks that compute are no hang, however long."""
    assert diagnose(Statuses.of([late(0), late(1)]), Statuses.of([late(0), late(1)]), 2) is None


def test_models_on_some_ranks() -> None:
    """A model whose whole group is known concerns nobody else."""
    pair = [waiting(rank, call(group_size=2)) for rank in range(2)]
    pair[1] = late(1)
    outside = status(2, model(step=5, bucket=0, model="other"), main=thread())
    found = of(*pair, outside, size=3)
    assert (found.kind, found.ranks) == ("busy", (1,))


def test_a_silent_rank_that_has_no_part_in_it() -> None:
    """All of the call's group are known: who does not answer is none of them."""
    pair = [waiting(0, call(group_size=2)), late(1)]
    found = of(*pair, silent=[SilentRank(rank=2, state="gone")], size=3)
    assert (found.kind, found.ranks) == ("busy", (1,))


def test_many_ranks() -> None:
    """Runs of ranks are shortened, and equal places said once."""
    found = of(*(waiting(rank) for rank in range(63)), late(63), late(64), size=65)
    assert "on ranks 0 to 62 for ranks 63, 64, each of which is in `data.py:88" in found.message


def at_barrier(rank: int) -> RankStatus:
    """A rank that waits at a barrier between two steps."""
    main = thread("eval.py:3 run", doing=("in barrier",))
    return status(rank, model(step=STEP, bucket=7), main=main, **pending(7, "barrier"))


def test_evaluation_on_one_rank() -> None:
    """No bucket waits, but a barrier that one has not come to."""
    evaluates = late(2, STEP, where="eval.py:9 score", pending=(), issued={"0": 6})
    found = of(at_barrier(0), at_barrier(1), evaluates, size=3)
    assert (found.kind, found.ranks, found.bucket) == ("busy", (2,), -1)
    assert found.message.startswith(
        "ranks 0, 1 wait in barrier in `eval.py:3 run`, after step 120, for rank 2, which is in "
        "`eval.py:9 score`; "
    )


def test_a_barrier_after_another() -> None:
    """At another line a second ago: they come and go there."""
    evaluates = late(2, STEP, pending=(), issued={"0": 6})
    before = msgspec.structs.replace(at_barrier(0), main=thread("a.py:1 f", doing=("in barrier",)))
    first, last = Statuses.of([before, evaluates]), Statuses.of([at_barrier(0), evaluates])
    assert diagnose(first, last, 2) is None


def test_barrier_that_all_have_come_to() -> None:
    """Who waits for whom is not known: nothing is said."""
    ranks = Statuses.of([at_barrier(0), at_barrier(1)])
    assert diagnose(ranks, ranks, 2) is None


def test_answers_travel() -> None:
    """A status is the same after its way over the channel."""
    whole = waiting(0, callbacks=(callback("a.py:1 f"),), **pending(3))
    encoded = msgspec.msgpack.encode(whole)
    assert msgspec.msgpack.decode(encoded, type=RankStatus) == whole


GATHER = "blocks.2 all-gather (forward)"
SCATTER = "blocks.2 reduce-scatter (backward)"


def unit(order: int = 9, name: str = GATHER, **more: Any) -> CallInFlight:
    """A collective of a sharded model; its bucket is numbered as the rank met it."""
    known = {"bucket": 3, "order": order, "unit": name, "collective": "all_gather"}
    return call(**{**known, **more})


def in_unit(rank: int, one: CallInFlight | None = None, **more: Any) -> RankStatus:
    """A rank that waits in one."""
    one = unit() if one is None else one
    return status(
        rank, model(one, unit=one.unit, order=one.order, **more), main=thread(doing=BACKWARD)
    )


def past_units(rank: int, step: int = STEP, order: int = 9, **more: Any) -> RankStatus:
    """A rank whose last collective has ended."""
    where = thread("train.py:70 evaluate")
    return status(rank, model(step=step, bucket=40, unit=SCATTER, order=order, **more), main=where)


def test_positions_of_units_are_counted_in_the_step() -> None:
    """Buckets of a sharded model are numbered as each rank met them: 40 is not past 3."""
    found = of(in_unit(0), past_units(1, order=8), size=2)
    assert (found.kind, found.ranks, found.waiting) == ("busy", (1,), (0,))
    assert found.message.startswith(
        f"{GATHER} of step 120 has waited 31 s on rank 0 for rank 1, which is in "
        "`train.py:70 evaluate`, 1 collective behind; "
    )
    assert found.what == ("model0", STEP, 9)


def test_a_unit_that_others_number_otherwise_is_the_same_one() -> None:
    """All are in it, so none is behind."""
    found = of(in_unit(0), in_unit(1, unit(bucket=17)), size=2)
    assert (found.kind, found.waiting) == ("unknown", (0, 1))


def test_units_at_one_place_of_the_step() -> None:
    """Ranks that run other modules: who is in what, and whose step is not as the one before."""
    other = unit(name=SCATTER, collective="reduce_scatter")
    left = "as the 5th blocks.2 all-gather (forward), where step 119 had blocks.1 ..."
    found = of(in_unit(0), in_unit(1, other, departure=left), in_unit(2), size=3)
    assert (found.kind, found.ranks, found.waiting) == ("different_collectives", (1,), (0, 1, 2))
    assert found.message.startswith(
        f"{GATHER} of step 120 has waited 31 s on ranks 0, 2, while rank 1 is in {SCATTER}: as the "
        f"10th collective of the step these do not match; rank 1 made {left}; have all ranks run "
    )
    both = of(in_unit(0), in_unit(1, other), size=2)
    assert both.ranks == ()  # which of two is right nobody knows
    assert "made" not in both.message


def test_a_step_that_ended_with_fewer_collectives() -> None:
    """Whether that rank stands elsewhere or waits in its next step."""
    more = {"ended_step": STEP, "ended_calls": 8, "left_out": ("a", "b", "c")}
    left = "has ended step 120 with 8 collectives, without a and b and others, which its step"
    behind = of(in_unit(0), past_units(1, order=7, **more), size=2)
    assert (behind.kind, behind.ranks) == ("different_collectives", (1,))
    assert f"for rank 1, which {left} before had, and went on: it is in" in behind.message
    following = in_unit(1, unit(0, step=STEP + 1), **more)
    ahead = of(in_unit(0), following, size=2)
    assert (ahead.kind, ahead.ranks, ahead.step) == ("different_collectives", (1,), STEP)
    assert f"which {left} before had, and is in {GATHER} of step 121" in ahead.message


def test_ranks_outside_of_a_unit_s_group_have_no_part_in_it() -> None:
    """Hybrid sharding: each replica gathers in a group of its own."""
    own = unit(members=(2, 4, 1), group_size=2)
    silent = [SilentRank(rank=3, state="stopped", pid=7, host="node1")]
    there = [in_unit(0, unit(12)), past_units(1, order=4), in_unit(2, own)]
    found = of(*there, silent=silent)
    assert (found.kind, found.ranks, found.waiting) == ("stopped", (3,), (2,))
    assert of(*there, past_units(3, order=8)).ranks == (3,)


def test_a_sharded_model_s_remedies() -> None:
    """There is no ``join`` of DDP's there."""
    ends = status(1, *past_units(1, STEP - 1).models, main=thread(doing=("ending",)))
    found = of(in_unit(0), ends, size=2)
    assert found.kind == "uneven_inputs"
    assert found.message.endswith(", 1 step behind; give all ranks as many batches")


def test_sharded_models_in_different_order() -> None:
    """Each rank stands in a unit of the model that the other has not come to."""

    def stands(rank: int, name: str, other: str) -> RankStatus:
        here = unit(0, model=name)
        there = model(model=other, step=STEP - 1, bucket=40, unit=SCATTER, order=10)
        at = thread("train.py:9 step", doing=("in all_gather_single",))
        return status(rank, model(here, unit=here.unit, order=0), there, main=at)

    found = of(stands(0, "a", "b"), stands(1, "b", "a"), size=2)
    assert (found.kind, found.model) == ("different_order", "a")
    assert f"which waits in {GATHER} of step 120 of b, which rank 0 has not come to" in (
        found.message
    )


@pytest.mark.parametrize(
    ("ended", "said"), [(STEP - 1, ", in step 120,"), (STEP, ", after step 120,")]
)
def test_a_sharded_model_may_be_within_its_step(ended: int, said: str) -> None:
    """Where FSDP is in a collective of its own, or in an evaluation that follows."""
    known = model(step=STEP, bucket=3, unit=SCATTER, order=9, ended_step=ended)
    waits = status(0, known, main=thread(doing=("in all_reduce",)), **pending(7))
    late = status(1, known, main=thread("x.py:1 f"), pending=(), issued={"0": 6})
    assert said in of(waits, late, size=2).message
