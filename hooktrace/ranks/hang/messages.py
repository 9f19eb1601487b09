"""What ranks and the hub tell each other of hangs, as it travels over the channel.

Suspicion --report--> hub     STATUS, STACKS --ask--> RankStatus, RankStacks
Hang --tell--> all ranks --> HangRecord
"""

from __future__ import annotations

import time

import msgspec

from ...records import HangRecord
from ...records.hang import RankStacks, called
from .collectives import Collectives, PendingCollective
from .evidence import NOWHERE, ThreadStack

SUSPICION, STATUS, STACKS, NOTICE = ("hang.suspicion", "hang.status", "hang.stacks", "hang.notice")
"""Names of the report, the two questions and the notice."""

_EXCUSED_TIMES = 10


class Placed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call of a model's hook.

    ``unit``: of a sharded model, which collective it is, and ``order`` how many of its step began
    before; its buckets are numbered as each rank met them, which tells no order.
    """

    model: str
    hook: str
    step: int
    bucket: int
    unit: str = ""
    order: int = -1

    @property
    def place(self) -> tuple[str, int, int]:
        """The same on all ranks that are in this call."""
        return self.model, *self.position

    @property
    def position(self) -> tuple[int, int]:
        """The step, and the bucket or how many collectives of the step began before."""
        return self.step, self.order if self.unit else self.bucket

    @property
    def name(self) -> str:
        """What people call it."""
        return called(self.bucket, self.unit)


class Suspicion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call waits too long; ``over``: it no longer does, and ``error`` is what it ended with.

    ``place``: as ``Placed`` has it; of a collective outside of hooks without a model.
    """

    place: tuple[str, int, int]
    threshold_ns: int
    over: bool = False
    error: str = ""


class CallInFlight(Placed, frozen=True, kw_only=True, gc=False):
    """A call of a hook whose result is not there.

    ``stage``: ``hook`` and ``future_wait`` of a plain hook, before and after it has returned; else
    ``serialization_wait`` (for other calls of multi-round hooks), ``compress``, ``wire`` or
    ``decompress``; ``meeting`` and ``check`` where hooktrace looks at the bucket or the result;
    ``device`` where the host has issued all of it.
    ``collective``, ``group_size``: of the one on the wire; "" and 0 where none is known.
    ``rounds``: collectives that have arrived.  ``age_ns``: since DDP called the hook.
    ``members``: the ranks in the collective's group, as ``range`` takes them; ``None``: all, or of
    a sharded model that is not known.
    """

    stage: str
    age_ns: int
    rounds: int = 0
    collective: str = ""
    group_size: int = 0
    members: tuple[int, int, int] | None = None


class ModelStatus(Placed, frozen=True, kw_only=True, gc=False):
    """Where a model stands on one rank: its hook's last call, of step -1 before the first.

    Of a sharded model ``ended_step`` is the last step that has ended, ``ended_calls`` how many
    collectives it had, and ``departure`` the first collective of ``departed_step`` that is not the
    one of the step before, as text.
    """

    in_flight: tuple[CallInFlight, ...] = ()
    last_call_age_ns: int | None = None
    ended_step: int = -1
    ended_calls: int = 0
    departure: str = ""
    departed_step: int = -1


EXCUSES = {
    "saving": "saves",
    "compiling": "compiles",
    "importing": "imports parts of torch",  # as what compiles, at its first use
}
"""What a training thread may do for long, and how people call it."""


class RankStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one rank says of itself.

    ``main``: the thread that trains.  ``callbacks``: threads of native code.  ``collectives``: what
    torch has issued; ``None`` where it does not tell.  ``paused``: the user says it may take long.
    """

    rank: int
    models: tuple[ModelStatus, ...] = ()
    main: ThreadStack = NOWHERE
    callbacks: tuple[ThreadStack, ...] = ()
    collectives: Collectives | None = None
    paused: bool = False

    @property
    def at(self) -> str:
        """Where its training thread is, as people read it."""
        return f"in `{self.main.where}`" if self.main.where else "at an unknown place"

    @property
    def is_excused(self) -> bool:
        """Whether it does what may take long."""
        return self.paused or not EXCUSES.keys().isdisjoint(self.main.doing)

    def stands_in(self, before: RankStatus) -> tuple[str, PendingCollective] | None:
        """Return where its training thread stands in a collective outside of hooks, and in which.

        In one that it stood in ``before``, too: other threads may have younger ones under way.
        """
        if not self.main.collective or self.in_flight or self.main.where != before.main.where:
            return None
        looks = self.collectives, before.collectives
        now, did = (() if look is None else look.pending for look in looks)
        same = min((one for one in now if one in did), key=lambda one: one.number, default=None)
        return None if same is None else (self.main.where, same)

    @property
    def in_flight(self) -> list[CallInFlight]:
        """All calls in flight, of all models."""
        return [call for model in self.models for call in model.in_flight]

    def model(self, name: str) -> ModelStatus | None:
        """Return the status of a model, ``None`` where this rank has no such."""
        return next((model for model in self.models if model.model == name), None)

    def position(self, model: str) -> tuple[int, int] | None:
        """Return where a model stands, ``None`` where this rank has no such."""
        found = self.model(model)
        return None if found is None else found.position


class Hang(Placed, frozen=True, kw_only=True, gc=False):
    """Why ranks wait, and in which call; as long as its ``place`` is the same, so is the hang.

    ``excused``: those that are waited for do, or did a moment ago, what may take long.
    ``age_ns``: how long the call has waited, at most.  The rest is as in ``HangRecord``.
    """

    kind: str
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    age_ns: int
    message: str
    excused: bool = False
    hang: int = 0
    stacks: tuple[RankStacks, ...] = ()
    ended_after_ns: int | None = None
    failed: bool = False

    def is_due(self, threshold_ns: int) -> bool:
        """Return whether it is to be told; what may take long, only after ten times as long.

        A rank may still suspect an earlier call, when all are asked and are in the next one.
        Where no bucket waits, the rank that suspects knows for how long it has stood there.
        """
        if self.bucket < 0 and not self.excused:
            return True
        return self.age_ns >= threshold_ns * (_EXCUSED_TIMES if self.excused else 1)

    def record(self, rank: int, now_ns: int, wall_ns: int) -> HangRecord:
        """Return what a rank records of it; ``now_ns`` by its clock, ``wall_ns`` since 1970."""
        known = msgspec.structs.asdict(self)
        for own in ("order", "age_ns", "excused"):
            del known[own]
        since_wall_ns = max(0, wall_ns - self.age_ns)
        return HangRecord(
            **known, rank=rank, since_ns=now_ns - self.age_ns, since_wall_ns=since_wall_ns
        )


def stamped(rank: int, wall_ns: int, text: str) -> str:
    """Return a line for the log: "[rank 1, 01:46:40 UTC] hang: ..."."""
    return f"[rank {rank}, {time.strftime('%H:%M:%S', time.gmtime(wall_ns // 10**9))} UTC] {text}"
