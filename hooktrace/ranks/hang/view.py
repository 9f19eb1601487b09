"""Two rounds of answers put side by side: what waits, who is missing there, who has gone past it.

two Statuses --unmoved calls--> the front: the call that the others' progress hangs on
                                  +--> waiting, past, behind, silent: each rank's part in it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ...records.hang import hang_kind
from ..channel.messages import Silent, unheard
from .messages import HangDiagnosis
from .status import CallInFlight, Placed, RankStatus


class Statuses(NamedTuple):
    """What all ranks answered to one question, and who did not."""

    statuses: Mapping[int, RankStatus]
    silent: Mapping[int, Silent]

    @classmethod
    def of(cls, statuses: Iterable[RankStatus], silent: Iterable[Silent] = ()) -> Statuses:
        """Return the answers as they came."""
        return cls({s.rank: s for s in statuses}, {s.rank: s for s in silent})


class Finding(NamedTuple):
    """What a rule tells of ranks that wait: for which ``ranks``.

    ``text`` goes on where "has waited on ranks" ends.
    """

    kind: str
    ranks: Collection[int]
    text: str

    def concluded(
        self, front: Placed, waiting: Iterable[int], age_ns: int, opening: str, *looks: Statuses
    ) -> HangDiagnosis:
        """Return what it comes to: of ranks that wait in ``front``, as ``opening`` says."""
        return HangDiagnosis(
            kind=self.kind,
            model=front.model,
            hook=front.hook,
            step=front.step,
            bucket=front.bucket,
            ranks=tuple(sorted(self.ranks)),
            waiting=tuple(sorted(waiting)),
            age_ns=age_ns,
            message=f"{opening}{self.text}; {hang_kind(self.kind).remedy_of(front.unit)}",
            excused=self.kind == "busy" and all(_is_excused(rank, looks) for rank in self.ranks),
            unit=front.unit,
            order=front.order,
        )


def _is_excused(rank: int, looks: Iterable[Statuses]) -> bool:
    """Return whether a rank does what may take long, or did a moment ago."""
    said = [look.statuses[rank] for look in looks if rank in look.statuses]
    return any(one.is_excused for one in said)


class View:
    """The ranks in front of one call that does not move.

    ``waiting``: are in it.  ``past``: had its result and went on.  ``behind``: have not come to it,
    among them those that know nothing of the model.  ``silent``: did not answer.  A rank that has
    no such model where all ranks of the call's group are known has no part in it, and neither has
    one that is known not to be in that group.
    """

    def __init__(
        self, front: CallInFlight, first: Statuses, last: Statuses, world_size: int
    ) -> None:
        self.front = front
        self.looks = first, last
        self.waiting: dict[int, RankStatus] = {}
        self.past: dict[int, RankStatus] = {}
        self.behind: dict[int, RankStatus] = {}
        members = range(world_size) if front.members is None else range(*front.members)
        answered = {rank: last.statuses[rank] for rank in members if rank in last.statuses}
        knowing = sum(s.model(front.model) is not None for s in answered.values())
        is_whole = 0 < front.group_size <= knowing
        for rank, status in answered.items():
            model = status.model(front.model)
            if model is None:
                if not is_whole:
                    self.behind[rank] = status
            elif any(call.position == front.position for call in model.in_flight):
                self.waiting[rank] = status
            elif model.position >= front.position:
                self.past[rank] = status
            else:
                self.behind[rank] = status
        missing = [] if is_whole else [rank for rank in members if rank not in last.statuses]
        self.silent = {rank: last.silent.get(rank, unheard(rank)) for rank in missing}

    def call(self, rank: int) -> CallInFlight:
        """Return a waiting rank's part of the front."""
        calls = self.waiting[rank].in_flight
        return next(call for call in calls if call.place == self.front.place)

    def in_stage(self, *stages: str) -> list[int]:
        """Return the waiting ranks whose call is in one of some stages."""
        return [rank for rank in self.waiting if self.call(rank).stage in stages]

    @property
    def mismatched(self) -> dict[int, CallInFlight]:
        """The waiting ranks whose call, at the same place of a sharded step, is another one."""
        calls = {rank: self.call(rank) for rank in self.waiting}
        return {rank: call for rank, call in calls.items() if call.unit != self.front.unit}

    @property
    def matching(self) -> list[int]:
        """The other waiting ranks."""
        return [rank for rank in self.waiting if rank not in self.mismatched]

    def before(self, rank: int) -> RankStatus | None:
        """Return what a rank said first, ``None`` where it said nothing."""
        return self.looks[0].statuses.get(rank)

    @property
    def everyone(self) -> dict[int, RankStatus]:
        """All ranks that answered and have a part in it."""
        return {**self.waiting, **self.past, **self.behind}

    @property
    def moves(self) -> bool:
        """Whether a rank that is waited for came nearer between the two rounds, or came."""
        return any(self._has_come_nearer(rank, now) for rank, now in self.everyone.items())

    def _has_come_nearer(self, rank: int, now: RankStatus) -> bool:
        before, model = self.before(rank), self.front.model
        if before is None:
            return False
        was = before.position(model)
        return (was is None or was < self.front.position) and was != now.position(model)


def front_of(first: Statuses, last: Statuses) -> CallInFlight | None:
    """Return the call that the others' progress hangs on, ``None`` where all calls move.

    Of the model whose call has waited longest, the one of the lowest step and bucket: whoever
    waits at a later one has had this one's result.
    """
    unmoved = [
        call
        for rank, status in last.statuses.items()
        if rank in first.statuses
        for call in _unmoved(first.statuses[rank], status)
    ]
    if not unmoved:
        return None
    longest = max(unmoved, key=lambda call: call.age_ns)
    lowest = min(call.position for call in unmoved if call.model == longest.model)
    same = [c for c in unmoved if c.model == longest.model and c.position == lowest]
    return max(same, key=lambda call: (call.group_size, call.age_ns))


def _unmoved(before: RankStatus, now: RankStatus) -> list[CallInFlight]:
    known = {(*call.place, call.stage, call.rounds) for call in before.in_flight}
    return [call for call in now.in_flight if (*call.place, call.stage, call.rounds) in known]
