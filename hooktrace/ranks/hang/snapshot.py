"""Two rounds of answers put side by side: where ranks wait, and each rank's part in that.

two Rounds --a call of a hook that has not moved, or a collective of torch's own--> Snapshot
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from ...records.units import named_ranks, time_text
from ..channel.messages import Silent, unheard
from ..channel.node import Answers
from .collectives import Comparison, compare
from .evidence import ThreadStack
from .messages import CallInFlight, ModelStatus, Placed, RankStatus

Place = Literal["waiting", "past", "behind"]
"""Of a rank that answered: it is in the call, had its result and went on, or has not come to it,
as one that knows nothing of the model."""

_NO_MODEL = ModelStatus(model="", hook="", step=-1, bucket=-1)

NOTHING = RankStatus(rank=-1)
"""What is known of a rank that has not answered."""

Round = Answers[RankStatus]
"""What all ranks said of themselves at one time."""


class Rank(NamedTuple):
    """A rank that answered; ``before``: a second ago, or ``NOTHING``.

    ``model``: as it is there, of the call; ``call``: of a hook, that it waits in.
    """

    number: int
    place: Place
    now: RankStatus
    before: RankStatus
    model: ModelStatus | None
    call: CallInFlight | None = None

    @property
    def waiting_callbacks(self) -> list[ThreadStack]:
        """Its threads of native code that stand where something's ``wait`` is called."""
        known = {thread.ident: thread.where for thread in self.before.callbacks}
        return [
            one for one in self.now.callbacks if one.waits and known.get(one.ident) == one.where
        ]


@dataclass(frozen=True)
class Snapshot:
    """The ranks around one call that does not move.

    ``front``: that one; where ranks wait in a collective outside of hooks, which one came last
    before that.  ``age_ns``: for how long it has waited, at most.  ``opening``: that as text, which
    goes on with what is waited for.
    """

    front: Placed
    ranks: tuple[Rank, ...]
    silent: Mapping[int, Silent]
    age_ns: int
    opening: str

    @cached_property
    def waiting(self) -> list[Rank]:
        """Those that are in the call."""
        return [rank for rank in self.ranks if rank.place == "waiting"]

    @cached_property
    def calls(self) -> dict[int, CallInFlight]:
        """The calls of those that wait in a hook's, at one place; none outside of hooks."""
        return {rank.number: rank.call for rank in self.waiting if rank.call is not None}

    def in_stage(self, *stages: str) -> list[Rank]:
        """Return the waiting ranks whose call is in one of some stages."""
        return [one for one in self.waiting if one.call is not None and one.call.stage in stages]

    @cached_property
    def comparison(self) -> Comparison:
        """What torch's own lists of the ranks' collectives show."""
        issued = {one.number: one.now.collectives for one in self.ranks}
        return compare(issued, [one.number for one in self.waiting])


def snapshot(first: Round, last: Round, world_size: int) -> Snapshot | None:
    """Return where ranks wait; ``None`` where none does, or what they wait for moves."""
    front = _front(first, last)
    if front is None:
        return _around_collective(first, last)
    return _around_call(front, first, last, world_size)


def _front(first: Round, last: Round) -> CallInFlight | None:
    """Return the call that the others' progress hangs on, ``None`` where all calls move.

    Of the model whose call has waited longest, the one of the lowest step and bucket: whoever
    waits at a later one has had this one's result.
    """

    def state(call: CallInFlight) -> object:
        return call.place, call.stage, call.rounds

    unmoved = [
        call
        for rank, status in last.answers.items()
        for call in status.in_flight
        if rank in first.answers and state(call) in map(state, first.answers[rank].in_flight)
    ]
    if not unmoved:
        return None
    longest = max(unmoved, key=lambda call: call.age_ns)
    lowest = min(call.position for call in unmoved if call.model == longest.model)
    same = [c for c in unmoved if c.model == longest.model and c.position == lowest]
    return max(same, key=lambda call: (call.group_size, call.age_ns))


def _around_call(
    front: CallInFlight, first: Round, last: Round, world_size: int
) -> Snapshot | None:
    """Return the ranks around a call of a hook, unless one of them came nearer to it.

    Who is not in the call's group has no part in it, nor has one without the model where all ranks
    of the group are known.
    """
    members = range(world_size) if front.members is None else range(*front.members)
    answered = {rank: last.answers[rank] for rank in members if rank in last.answers}
    knowing = [rank for rank, now in answered.items() if now.model(front.model) is not None]
    is_whole = 0 < front.group_size <= len(knowing)
    ranks = tuple(
        _part(rank, answered[rank], first.answers.get(rank, NOTHING), front)
        for rank in (knowing if is_whole else answered)
    )
    if any(_came_nearer(rank, front) for rank in ranks):
        return None
    missing = [] if is_whole else [rank for rank in members if rank not in last.answers]
    calls = {rank.number: rank.call for rank in ranks if rank.call is not None}
    age_ns = max([front.age_ns, *(call.age_ns for call in calls.values())])
    models = {model.model for rank in ranks for model in rank.now.models}
    matching = [rank for rank, call in calls.items() if call.unit == front.unit]
    of_model = f" of {front.model}" if len(models) > 1 else ""
    return Snapshot(
        front,
        ranks,
        {rank: last.silent.get(rank, unheard(rank)) for rank in missing},
        age_ns,
        f"{front.name} of step {front.step}{of_model} has waited {time_text(age_ns)} "
        f"on {named_ranks(matching)}",
    )


def _part(rank: int, now: RankStatus, before: RankStatus, front: CallInFlight) -> Rank:
    model = now.model(front.model)
    if model is None:
        return Rank(rank, "behind", now, before, None)
    call = next((one for one in model.in_flight if one.place == front.place), None)
    place: Place = "past" if model.position >= front.position else "behind"
    return Rank(rank, place if call is None else "waiting", now, before, model, call)


def _came_nearer(rank: Rank, front: CallInFlight) -> bool:
    """Return whether a rank that is waited for came nearer between the two rounds, or came."""
    if rank.before is NOTHING:
        return False
    did, now = rank.before.position(front.model), rank.now.position(front.model)
    return (did is None or did < front.position) and did != now


def _around_collective(first: Round, last: Round) -> Snapshot | None:
    """Return the ranks around a collective of torch's own, outside of hooks.

    As at a barrier, where one rank evaluates, or in DDP's forward pass for its buffers.
    """
    answered = last.answers
    before = {rank: first.answers.get(rank, NOTHING) for rank in answered}
    still = {
        rank: stands
        for rank, now in answered.items()
        if (stands := now.stands_in(before[rank])) is not None
    }
    comparison = compare({rank: now.collectives for rank, now in answered.items()}, still)
    late = comparison.ranks if comparison.verdict == "not_issued" else ()
    waiting = sorted(set(still).difference(late))
    if comparison.verdict == "untold" or not waiting:
        return None

    where, one = still[waiting[0]]
    models = answered[waiting[0]].models
    model = max(models, key=lambda model: model.position, default=_NO_MODEL)
    what = f"{one.kind} in `{where}`, at step {model.step},"
    if comparison.verdict == "different":
        what = f"different collectives, at step {model.step}"
    places: dict[int, Place] = dict.fromkeys(late, "behind")
    places |= dict.fromkeys(waiting, "waiting")
    return Snapshot(
        Placed(model=model.model, hook=model.hook, step=max(model.step, 0), bucket=-1),
        tuple(
            Rank(rank, places.get(rank, "past"), now, before[rank], now.model(model.model))
            for rank, now in answered.items()
        ),
        last.silent,
        model.last_call_age_ns or 0,
        f"{named_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in {what}",
    )
