"""Round of ranks as real processes gave them, in few words."""

from __future__ import annotations

from typing import Any

from hooktrace.ranks.channel.messages import Member, Silent, State
from hooktrace.ranks.hang.collectives import PendingCollective
from hooktrace.ranks.hang.evidence import ThreadStack
from hooktrace.ranks.hang.status import CallInFlight, ModelStatus, RankStatus

S = 1_000_000_000
STEP = 120
BACKWARD = ("backward",)


def thread(where: str = "train.py:50 step", **more: Any) -> ThreadStack:
    """A thread that stands somewhere."""
    return ThreadStack(name=more.pop("name", "MainThread"), ident=1, frames=(), where=where, **more)


def callback(where: str, ident: int = 7) -> ThreadStack:
    """A thread of gloo's that waits in a callback."""
    return ThreadStack(
        name=f"thread {ident}", ident=ident, frames=(), where=where, waits=True, foreign=True
    )


def silent(rank: int, state: State, pid: int = 9, host: str = "node2", why: str = "") -> Silent:
    """A rank that does not answer."""
    return Silent(Member(rank, pid, host, f"{host}#boot"), state, why)


def call(bucket: int = 5, step: int = STEP, **more: Any) -> CallInFlight:
    known = {"model": "model0", "hook": "fp16", "stage": "wire", "age_ns": 31 * S}
    if more.get("stage", "wire") == "wire":
        known |= {"collective": "all_reduce", "group_size": 4}
    return CallInFlight(**{**known, "step": step, "bucket": bucket, **more})


def model(*in_flight: CallInFlight, **more: Any) -> ModelStatus:
    """A model whose last call is the last of those in flight."""
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
    """A rank that has not come to the call."""
    main = thread(more.pop("where", "data.py:88 next_batch"), **more.pop("thread", {}))
    return status(rank, model(step=step, bucket=bucket), main=main, **more)


def status(rank: int, *models: ModelStatus, **more: Any) -> RankStatus:
    return RankStatus(rank=rank, models=models, **more)


def pending(number: int, kind: str = "all_reduce", numel: int = 1024) -> dict[str, Any]:
    """What torch tells of a rank that has issued a collective last, and waits for it."""
    one = PendingCollective("0", "default_pg", number, kind, numel)
    return {"pending": (one,), "issued": {"0": number}}


def at_barrier(rank: int, where: str = "eval.py:3 run") -> RankStatus:
    """A rank that waits at a barrier between two steps."""
    main = thread(where, collective="barrier")
    return status(rank, model(step=STEP, bucket=7), main=main, **pending(7, "barrier"))


EVALUATES = late(1, STEP, pending=(), issued={"0": 6})


FUTURE = call(stage="future")
MEETING = call(stage="meeting")
NONE: dict[str, Any] = {"pending": (), "issued": {"0": 6}}
PAIR = call(group_size=2)
BOOM = "ValueError: boom at loss.py:12"
UNREDUCED = "RuntimeError: Expected to have finished reduction in the prior iteration at t.py:1"
STUCK = (callback("powerSGD_hook.py:589 a", 7), callback("powerSGD_hook.py:611 b", 8))


def late_here(where: str, **known: object) -> RankStatus:
    """Rank 2, which has had the first four buckets of the step."""
    return late(2, STEP, 3, where=where, thread=known)


def late_in(where: str, **known: object) -> RankStatus:
    """Rank 2, which is a step behind."""
    return late(2, where=where, thread=known)


def after_5(rank: int, collectives: int) -> RankStatus:
    """A rank that is in bucket 6, after so many collectives for bucket 5."""
    finished = ((5, collectives),)
    return status(rank, model(call(6), finished=finished), main=thread(doing=BACKWARD))


def in_second(rank: int, first_step: int) -> RankStatus:
    """A rank in the backward pass of a second model, whose first model stands at a step."""
    first = model(step=first_step, bucket=7)
    second = model(call(0, STEP, model="model1"))
    return status(rank, first, second, main=thread(doing=BACKWARD))


def in_first(rank: int) -> RankStatus:
    """A rank in the backward pass of the first model."""
    second = model(step=STEP - 1, bucket=7, model="model1")
    return status(rank, model(call(0)), second, main=thread(doing=BACKWARD))


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
