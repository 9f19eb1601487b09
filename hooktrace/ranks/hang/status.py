"""What a rank tells of itself when it is asked: its models and their calls in flight.

look.py --CallInFlight, one a bucket--> ModelStatus --> RankStatus --> the hub
"""

from __future__ import annotations

import msgspec

from ...records.hang import called
from .collectives import PendingCollective
from .evidence import ThreadStack


class Placed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call of a model's hook.

    Of a sharded model ``unit`` says which collective it is, and ``order`` how many of its step
    began before.  Its buckets are numbered as each rank met them, which tells no order.
    """

    model: str
    hook: str
    step: int
    bucket: int
    unit: str = ""
    order: int = -1

    @property
    def place(self) -> tuple[str, int, int]:
        """The model, and the position: the same on all ranks that are in this call."""
        return self.model, *self.position

    @property
    def position(self) -> tuple[int, int]:
        """The step, and the bucket or how many collectives of the step began before."""
        return self.step, self.order if self.unit else self.bucket

    @property
    def name(self) -> str:
        """What people call it."""
        return called(self.bucket, self.unit)


class CallInFlight(Placed, frozen=True, kw_only=True, gc=False):
    """A call of a hook whose result is not there.

    ``stage``: ``hook`` and ``future`` of a plain hook, which has not returned, or has and its
    future is awaited; else ``turn`` (it waits for that among multi-round hooks), ``compress``,
    ``wire`` or ``decompress``; ``meeting`` where hooktrace looks at the bucket, before the hook is
    called, and on a device ranks may wait for each other; ``probe`` where it looks at the result;
    ``device`` where the host has issued all of it.
    ``collective``, ``group_size``: of the one on the wire; "" and 0 where none is known.
    ``rounds``: collectives that have arrived.  ``age_ns``: since DDP called the hook.
    ``members``: of a sharded model, the ranks of the job that are in the collective's group, as
    ``range`` takes them.
    """

    stage: str
    age_ns: int
    rounds: int = 0
    collective: str = ""
    group_size: int = 0
    members: tuple[int, int, int] | None = None


EXCUSES = {
    "saving": "saves",
    "compiling": "compiles",
    "importing": "imports parts of torch",  # as what compiles, at its first use
}
"""What a training thread may do for long, and how people call it."""


class ModelStatus(Placed, frozen=True, kw_only=True, gc=False):
    """Where a model stands on one rank: its hook's last call, of step -1 before the first.

    ``finished``: buckets of that step whose results are
    there, with how many collectives were seen of each; -1 for a plain hook.
    ``last_call_age_ns``: since the last call; ``None`` before the first.

    Of a sharded model ``ended_step`` is the last step that has ended, ``ended_calls`` how many
    collectives it had, and ``left_out`` which ones, of those that the step before it had, it had
    not.
    ``departure``: the first collective of the step that is not the one of the step before, as text.
    """

    in_flight: tuple[CallInFlight, ...] = ()
    finished: tuple[tuple[int, int], ...] = ()
    last_call_age_ns: int | None = None
    ended_step: int = -1
    ended_calls: int = 0
    left_out: tuple[str, ...] = ()
    departure: str = ""

    def ended_without(self, call: Placed) -> bool:
        """Return whether a sharded model's step has ended before it came to a call."""
        is_its_step = bool(self.unit) and self.ended_step == call.step
        return is_its_step and self.ended_calls <= call.order


class RankStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one rank says of itself.

    ``main``: the thread that trains, without its frames.  ``callbacks``: threads of native code,
    likewise.  ``pending``: collectives that torch has issued and that have not completed; ``None``
    where it does not tell.  ``issued``: of process groups, by name, the number of the last one
    issued.  ``paused``: the user has said that this may take long.
    """

    rank: int
    models: tuple[ModelStatus, ...] = ()
    main: ThreadStack | None = None
    callbacks: tuple[ThreadStack, ...] = ()
    pending: tuple[PendingCollective, ...] | None = None
    issued: dict[str, int] = {}
    paused: bool = False

    @property
    def is_excused(self) -> bool:
        """Whether it does what may take long: it saves, compiles, imports torch, or has said so."""
        doing = () if self.main is None else self.main.doing
        return self.paused or not EXCUSES.keys().isdisjoint(doing)

    def model(self, name: str) -> ModelStatus | None:
        """Return the status of a model, ``None`` where this rank has no such."""
        return next((model for model in self.models if model.model == name), None)

    def position(self, model: str) -> tuple[int, int] | None:
        """Return where a model stands, ``None`` where this rank has no such."""
        found = self.model(model)
        return None if found is None else found.position

    @property
    def in_flight(self) -> list[CallInFlight]:
        """All calls in flight, of all models."""
        return [call for model in self.models for call in model.in_flight]
