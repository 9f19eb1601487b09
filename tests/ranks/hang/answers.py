"""Ranks of jobs that stand still, in few words: each kind of hang, and what comes near it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hooktrace.ranks.channel.messages import Member, Silent, State
from hooktrace.ranks.hang.collectives import Collectives, PendingCollective
from hooktrace.ranks.hang.evidence import ThreadStack
from hooktrace.ranks.hang.messages import CallInFlight, ModelStatus, RankStatus
from hooktrace.ranks.hang.snapshot import Round

S = 1_000_000_000
STEP = 120
BACKWARD = ("backward",)


def thread(where: str = "train.py:50 step", **more: Any) -> ThreadStack:
    return ThreadStack(name=more.pop("name", "MainThread"), ident=1, frames=(), where=where, **more)


def callback(where: str, ident: int = 7) -> ThreadStack:
    return ThreadStack(
        name=f"thread {ident}", ident=ident, frames=(), where=where, waits=True, foreign=True
    )


def silent(rank: int, state: State, pid: int = 9, host: str = "node2", why: str = "") -> Silent:
    return Silent(Member(rank, pid, host, f"{host}#boot"), state, why)


def call(bucket: int = 5, step: int = STEP, **more: Any) -> CallInFlight:
    known = {"model": "model0", "hook": "fp16", "stage": "wire", "age_ns": 31 * S}
    if more.get("stage", "wire") == "wire":
        known |= {"collective": "all_reduce", "group_size": 4}
    return CallInFlight(**{**known, "step": step, "bucket": bucket, **more})


def model(*in_flight: CallInFlight, **more: Any) -> ModelStatus:
    known: dict[str, Any] = {"model": "model0", "hook": "fp16"}
    if in_flight:
        known |= {"step": in_flight[-1].step, "bucket": in_flight[-1].bucket}
        known |= {"model": in_flight[-1].model}
    return ModelStatus(**{**known, "in_flight": in_flight, "last_call_age_ns": 31 * S, **more})


def waiting(rank: int, *calls: CallInFlight, **more: Any) -> RankStatus:
    main = more.pop("main", thread(doing=BACKWARD))
    models = (model(*(calls or (call(),))),)
    return status(rank, *models, main=main, **more)


def late(rank: int, step: int = STEP - 1, bucket: int = 7, **more: Any) -> RankStatus:
    main = thread(more.pop("where", "data.py:88 next_batch"), **more.pop("thread", {}))
    return status(rank, model(step=step, bucket=bucket), main=main, **more)


def status(rank: int, *models: ModelStatus, **more: Any) -> RankStatus:
    return RankStatus(rank=rank, models=models, **more)


def pending(number: int, kind: str = "all_reduce", numel: int = 1024) -> dict[str, Any]:
    """What torch tells of a rank that has issued a collective last, and waits for it."""
    one = PendingCollective("0", "default_pg", number, kind, numel)
    return {"collectives": Collectives((one,), {"0": number})}


def at_barrier(rank: int, where: str = "eval.py:3 run") -> RankStatus:
    main = thread(where, collective="barrier")
    return status(rank, model(step=STEP, bucket=7), main=main, **pending(7, "barrier"))


FUTURE = call(stage="future_wait")
MEETING = call(stage="meeting")
NONE: dict[str, Any] = {"collectives": Collectives((), {"0": 6})}
EVALUATES = late(1, STEP, **NONE)
PAIR = call(group_size=2)
BOOM = "ValueError: boom at loss.py:12"
STUCK = (callback("powerSGD_hook.py:589 a", 7), callback("powerSGD_hook.py:611 b", 8))


def late_here(where: str, **known: object) -> RankStatus:
    return late(2, STEP, 3, where=where, thread=known)


def late_in(where: str, **known: object) -> RankStatus:
    return late(2, where=where, thread=known)


def in_second(rank: int, first_step: int) -> RankStatus:
    first = model(step=first_step, bucket=7)
    second = model(call(0, STEP, model="model1"))
    return status(rank, first, second, main=thread(doing=BACKWARD))


def in_first(rank: int) -> RankStatus:
    second = model(step=STEP - 1, bucket=7, model="model1")
    return status(rank, model(call(0)), second, main=thread(doing=BACKWARD))


GATHER = "blocks.2 all-gather (forward)"
SCATTER = "blocks.2 reduce-scatter (backward)"


def unit(order: int = 9, name: str = GATHER, **more: Any) -> CallInFlight:
    known = {"bucket": 3, "order": order, "unit": name, "collective": "all_gather"}
    return call(**{**known, **more})


def in_unit(rank: int, one: CallInFlight | None = None, **more: Any) -> RankStatus:
    one = unit() if one is None else one
    return status(
        rank, model(one, unit=one.unit, order=one.order, **more), main=thread(doing=BACKWARD)
    )


def outside_of_units(rank: int, kind: str, **more: Any) -> RankStatus:
    """In a collective of the script's own, beside a sharded model."""
    main = thread(collective=kind)
    one = model(step=STEP, bucket=5, unit=GATHER, order=7, **more)
    return status(rank, one, main=main, **pending(12, kind))


def past_units(rank: int, step: int = STEP, order: int = 9, **more: Any) -> RankStatus:
    where = thread("train.py:70 evaluate")
    return status(rank, model(step=step, bucket=40, unit=SCATTER, order=order, **more), main=where)


class Job(NamedTuple):
    """What its ranks say, and some ``before``; ``silent``: processes of the lowest that do not."""

    said: Sequence[RankStatus]
    silent: tuple[State, ...] = ()
    before: Sequence[RankStatus] = ()

    def rounds(self) -> tuple[Round, Round, int]:
        missing = [rank for rank in range(9) if rank not in {one.rank for one in self.said}]
        quiet = [silent(rank, one) for rank, one in zip(missing, self.silent, strict=False)]
        said = {one.rank: one for one in self.said}
        first = {**said, **{one.rank: one for one in self.before}}
        mute = {one.rank: one for one in quiet}
        size = 1 + max(one.rank for one in (*self.said, *quiet))
        return Round(first, mute), Round(said, mute), max(size, 2)


def job(*said: RankStatus, silent: str = "", before: Sequence[RankStatus] = ()) -> Job:
    return Job(said, tuple(silent.split()), before)  # type: ignore[arg-type]


def others(*but: int) -> list[RankStatus]:
    return [waiting(rank) for rank in range(4) if rank not in but]


def stands(rank: int, name: str, other: str) -> RankStatus:
    here = unit(0, model=name)
    there = model(model=other, step=STEP - 1, bucket=40, unit=SCATTER, order=10)
    at = thread("train.py:9 step", collective="all_gather_single")
    return status(rank, model(here, unit=here.unit, order=0), there, main=at)


def late_at_barrier(where: str = "f", **known: Any) -> RankStatus:
    return late(1, STEP, where=where, thread=known, **NONE)


def issued(*kinds: str) -> list[RankStatus]:
    return [waiting(rank, FUTURE, **pending(7, kind)) for rank, kind in enumerate(kinds)]


def in_barrier(where: str = "f") -> RankStatus:
    return late(2, where=where, thread={"collective": "barrier"})


def in_group(rank: int, group: str, kind: str) -> RankStatus:
    one = PendingCollective(group, group, 1, kind, 8, (rank, rank + 1, 1))
    return waiting(rank, FUTURE, collectives=Collectives((one,), {group: 1}))


def of_pair(rank: int, last: int, *, pends: bool = False, known: bool = True) -> RankStatus:
    """A rank that has issued so many collectives of the group of ranks 0 and 1."""
    one = PendingCollective("1", "tp", 7, "all_reduce", 1024, (0, 2, 1) if known else None)
    issued = {"0": 5} | ({"1": last} if last else {})
    return waiting(rank, FUTURE, collectives=Collectives((one,) * pends, issued))


def calls_back(rank: int, *threads: Any) -> RankStatus:
    return waiting(rank, FUTURE, callbacks=threads)


LEFT: dict[str, Any] = {"ended_step": STEP, "ended_calls": 8}
MADE = "blocks.2 all-gather (forward) as the 5th, where step 119 had blocks.1 ..."
DEPARTED: dict[str, Any] = {"departure": MADE, "departed_step": STEP}
OTHER_UNIT = unit(name=SCATTER, collective="reduce_scatter")
HOOK = call(stage="hook")
IN_BACKWARD = late_here("f", doing=BACKWARD)
WAITS = (waiting(0), waiting(1))
PROBES = [waiting(rank, call(stage="check")) for rank in (0, 1)]
ELSEWHERE = status(2, model(step=5, bucket=0, model="other"))
DONE = model(step=STEP, bucket=7)
TRAINS_ANOTHER = [
    status(1, DONE, model(call(n, model="b")), main=thread("f", doing=BACKWARD), **NONE)
    for n in (0, 1)
]
PAIRS = PendingCollective("tp", "tp", 3, "barrier", 1, (1, 3, 1))
AT_PAIRS_BARRIER = status(
    *(1, DONE),
    main=thread("g", collective="barrier"),
    collectives=Collectives((PAIRS,), {"0": 6, "tp": 3}),
)
IN_REPLICA = in_unit(2, unit(members=(2, 4, 1), group_size=2))

JOBS = {
    "late": job(*others(2), late(2)),
    "two models in different order": job(in_first(0), in_first(1), in_second(2, STEP - 1)),
    "in another model, and why is not known": job(
        status(0, model(call(0)), model(model="model1", step=STEP, bucket=0)),
        in_second(1, STEP - 1),
    ),
    "left a bucket out": job(*others(2), late_here("f")),
    "raised": job(*others(2), late_in("a:3", exception=BOOM)),
    "ends": job(*others(2), late_in("main", doing=("ending",))),
    "at a barrier": job(*others(2), late_in("f", collective="barrier")),
    "late, in a group of two": job(waiting(0, PAIR), late(1), ELSEWHERE),
    **{
        f"its process: {state}": job(*others(2), silent=state)
        for state in ["gone", "stopped", "running", "unreachable", "ended", "unknown"]
    },
    "all in one collective": job(*others()),
    "all in one collective of the second of two models": job(*(in_second(r, STEP) for r in (0, 1))),
    "torch lists another": job(*issued("all_reduce", "broadcast", "all_reduce")),
    "torch lists none on one": job(*issued("all_reduce"), waiting(1, FUTURE, **NONE)),
    "torch lists none": job(waiting(0, FUTURE, **NONE), waiting(1, FUTURE, **NONE)),
    "torch tells nothing of a plain hook": job(waiting(0, FUTURE), waiting(1, FUTURE)),
    "in the hook's code": job(
        waiting(0, FUTURE),
        waiting(2, HOOK, main=thread("h.py:1 q", doing=BACKWARD)),
        waiting(1, FUTURE),
    ),
    "callbacks wait": job(waiting(0, FUTURE, callbacks=STUCK), waiting(1, FUTURE)),
    "probes do not begin": job(waiting(0, MEETING), waiting(1, MEETING)),
    "probes do not end": job(*PROBES),
    # Of a sharded model buckets are numbered as each rank met them: 40 is not past 3.
    "late in a sharded model": job(in_unit(0), past_units(1, order=8)),
    "another unit": job(in_unit(0), in_unit(1, OTHER_UNIT, **DEPARTED), in_unit(2)),
    "a step with fewer collectives": job(in_unit(0), past_units(1, order=7, **LEFT)),
    "a step with fewer collectives, in the next": job(
        in_unit(0), in_unit(1, unit(0, step=STEP + 1), **DEPARTED, **LEFT)
    ),
    "ends, of a sharded model": job(
        in_unit(0), status(1, *past_units(1, STEP - 1).models, main=thread(doing=("ending",)))
    ),
    "two sharded models in different order": job(stands(0, "a", "b"), stands(1, "b", "a")),
    "late to a barrier": job(
        at_barrier(0), at_barrier(1), late(2, STEP, where="eval.py:9 score", **NONE)
    ),
    "raised before a barrier": job(at_barrier(0), late_at_barrier(exception=BOOM)),
    "ends before a barrier": job(at_barrier(0), late_at_barrier(doing=("ending",))),
    "saves before a barrier": job(at_barrier(0), late_at_barrier(doing=("saving",))),
    "in a broadcast and not at the barrier": job(
        at_barrier(0), late_at_barrier(collective="broadcast")
    ),
    "stopped before a barrier": job(at_barrier(0), silent="stopped"),
    "saves": job(*others(2), late(2, thread={"doing": ("saving",)})),
    "pauses": job(*others(2), late(2, paused=True)),
    "pauses, and another is late": job(*others(1, 2), late(1), late(2, paused=True)),
    "many": job(*(waiting(rank) for rank in range(63)), late(63), late(64)),
    "one died, and another is late": job(waiting(0), waiting(1), late(2), silent="gone"),
    "in another collective, after a step in another order": job(
        outside_of_units(0, "barrier"),
        outside_of_units(1, "barrier", departure=GATHER + " as the 5th", departed_step=STEP),
        outside_of_units(2, "broadcast"),
    ),
    "one that nobody knows": job(waiting(0), waiting(1), waiting(3)),
    "at a barrier, of another group": job(
        at_barrier(0),
        AT_PAIRS_BARRIER,
        late(2, STEP, where="h", collectives=Collectives((), {"0": 7, "tp": 2})),
    ),
    "trains another model while others wait at a barrier": job(
        at_barrier(0), TRAINS_ANOTHER[1], before=TRAINS_ANOTHER[:1]
    ),
    # Hybrid sharding: each replica gathers in a group of its own.
    "late, of a unit's group": job(in_unit(0, unit(12)), IN_REPLICA, past_units(3, order=8)),
    "a group of two, both of which wait": job(
        of_pair(0, 7, pends=True), of_pair(1, 7, pends=True), of_pair(2, 0)
    ),
    "a group of two, of which one has not issued it": job(
        of_pair(0, 7, pends=True), of_pair(1, 6), of_pair(2, 0)
    ),
    "a group of two, of which one has its result": job(
        of_pair(0, 7, pends=True), of_pair(1, 7), of_pair(2, 0)
    ),
    "a group whose ranks are not known": job(
        of_pair(0, 7, pends=True, known=False), of_pair(1, 6), of_pair(2, 0)
    ),
    "saved a moment ago": job(waiting(0), late(1), before=[late(1, thread={"doing": ("saving",)})]),
}
"""One or more for each row of the table; what is told of them is in ``hangs.txt``."""

CALMS = {
    "moves": job(waiting(0), waiting(1), before=[waiting(rank, call(4)) for rank in (0, 1)]),
    "comes": job(waiting(0), late(1, STEP, 2, thread={"doing": BACKWARD}), before=[late(1)]),
    "has come, and has not issued it yet": job(
        waiting(0, **pending(7)), waiting(1, FUTURE, **NONE), before=[late(1, **NONE)]
    ),
    "nothing waits": job(late(0), late(1)),
    "another barrier": job(at_barrier(0), EVALUATES, before=[at_barrier(0, "a.py:1 f")]),
    "a barrier with all": job(at_barrier(0), at_barrier(1)),
}
"""What is no hang: who goes on is slow, and of who waits for whom nothing is known."""

NEARBY = {
    ("died", "its process is there"): job(*WAITS, silent="stopped"),
    ("stopped", "its process runs"): job(*WAITS, silent="running"),
    ("network", "its host answers"): job(*WAITS, silent="unknown"),
    ("interpreter_held", "nobody looks at it"): job(*WAITS, silent="unknown"),
    ("uneven_inputs", "its process runs"): job(*WAITS, silent="running"),
    ("unknown", "its process is known"): job(*WAITS, silent="ended"),
    ("different_collectives", "its step goes on"): job(
        in_unit(0), past_units(1, order=7, ended_step=STEP - 1, ended_calls=8)
    ),
    ("different_collectives", "it has made the call"): job(
        in_unit(0), past_units(1, order=9, ended_step=STEP, ended_calls=10)
    ),
    ("different_collectives", "the model is not sharded"): job(
        *WAITS, status(2, model(step=STEP - 1, bucket=7, ended_step=STEP, ended_calls=8))
    ),
    ("missing_bucket", "its backward pass runs"): job(*WAITS, IN_BACKWARD),
    ("missing_bucket", "that ran a moment ago"): job(*WAITS, late_here("f"), before=[IN_BACKWARD]),
    ("missing_bucket", "it is in another call"): job(
        *WAITS,
        status(2, model(call(3)), main=thread("f")),
        before=[status(2, model(call(3, stage="hook")), main=thread("f"))],
    ),
    ("missing_bucket", "it has had no bucket of the step"): job(
        *WAITS, late(2, STEP - 1, 3, where="f")
    ),
    ("missing_bucket", "the model is sharded"): job(
        in_unit(0), status(1, model(step=STEP, bucket=1, unit=SCATTER), main=thread())
    ),
    ("raised", "it handles nothing"): job(*WAITS, late_here("f")),
    ("uneven_inputs", "it trains"): job(*WAITS, IN_BACKWARD),
    ("busy", "all that are behind wait themselves"): job(*WAITS, in_barrier()),
    ("different_collectives", "its thread moves"): job(
        *WAITS, in_barrier("g"), before=[in_barrier()]
    ),
    ("different_collectives", "the collective is a sharded model's"): job(
        *WAITS, status(2, model(unit(model="b")), main=thread(collective="all_gather"))
    ),
    ("different_order", "those who wait have come to the other model's call"): job(
        status(0, model(call(0)), model(model="model1", step=STEP, bucket=0)),
        in_second(2, STEP - 1),
    ),
    ("unknown", "nobody is behind"): job(in_second(0, STEP), in_second(2, STEP)),
    ("waits_in_callback", "the callback moves"): job(
        calls_back(0, callback("b.py:1 f")), before=[calls_back(0, callback("b.py:9 g"))]
    ),
    ("waits_in_callback", "it calls no wait"): job(calls_back(0, thread("b.py:1 f", foreign=True))),
    ("unknown", "the hook runs"): job(waiting(0, HOOK)),
    ("different_collectives", "all are in the same one"): job(
        in_unit(0), in_unit(1, unit(bucket=17))
    ),
    ("different_collectives", "torch does not tell of a rank"): job(
        *(waiting(r, FUTURE, **pending(7, k)) for r, k in ((0, "a"), (1, "b"))), waiting(2)
    ),
    ("different_collectives", "ranks are in different groups"): job(
        in_group(0, "a", "all_reduce"), in_group(1, "b", "broadcast")
    ),
    ("some_ranks_only", "torch does not tell of a rank"): job(
        waiting(0, FUTURE, **pending(7)), waiting(1, FUTURE, **NONE), waiting(2, FUTURE)
    ),
    ("some_ranks_only", "it is not in the group"): job(
        in_group(0, "a", "all_reduce"), waiting(1, FUTURE, **NONE)
    ),
    ("busy", "all ranks are in the hook's code"): job(waiting(0, HOOK), waiting(1, HOOK)),
    ("busy", "the code waits in a collective"): job(
        waiting(0, FUTURE), waiting(1, HOOK, main=thread(collective="all_reduce"))
    ),
    ("never_completed", "torch does not tell of a rank"): job(
        waiting(0, FUTURE, **NONE), waiting(1, FUTURE)
    ),
    ("never_completed", "a hook has not returned"): job(
        waiting(0, FUTURE, **NONE), waiting(1, HOOK, **NONE)
    ),
}
"""By the kind of a row and the clause of ``not_where``: a run in which it must be silent."""
