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
        known |= {"collective": "all_reduce", "wire_bytes": 4096, "group_size": 4}
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
    known = {"rank": rank, "host_id": "node1#boot"} | more
    return RankStatus(models=models, **known)


def pending(number: int, kind: str = "all_reduce", numel: int = 1024) -> dict[str, Any]:
    """What torch tells of a rank that has issued a collective last, and waits for it."""
    one = PendingCollective("0", "default_pg", number, kind, numel)
    return {"pending": (one,), "issued": {"0": number}}
