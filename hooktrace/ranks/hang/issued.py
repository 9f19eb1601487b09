"""What torch knows of the ranks' collectives, put side by side.

RankStatus.pending, .issued of all ranks --first group that tells--> Comparison

Only ranks that are in a group have a part in its collectives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from ...records.units import named_ranks
from .collectives import PendingCollective
from .sentences import grouped, have, parties
from .status import RankStatus

Verdict = Literal["none", "same", "different", "not_issued", "completed"]


class Comparison(NamedTuple):
    """What the pending collectives say; ``ranks``: those that are not where the others are.

    ``none``: no rank has one.  ``same``: all wait in the same one.  ``different``: in its place
    some issued another.  ``not_issued``: some have not come to it.  ``completed``: some had its
    result, others had not.
    """

    verdict: Verdict
    ranks: tuple[int, ...] = ()
    text: str = ""


def compare(statuses: Mapping[int, RankStatus], waiting: Collection[int] = ()) -> Comparison | None:
    """Compare the oldest pending collective of each group; ``None`` where a rank does not tell.

    What ``waiting`` ranks wait in tells first: others may stand in other groups for them.
    """
    if any(status.pending is None for status in statuses.values()):
        return None
    pending = {
        (rank, one.group): one
        for rank, status in statuses.items()
        for one in sorted(status.pending or (), key=lambda one: -one.number)
    }  # the lowest number of each rank and group
    groups = sorted({group for _, group in pending})
    found = {group: _compare_group(group, statuses, pending) for group in groups}
    telling = ("different", "not_issued", "completed", "same")

    def by_weight(group: str) -> tuple[bool, int]:
        is_theirs = any((rank, group) in pending for rank in waiting)
        return not is_theirs, telling.index(found[group].verdict)

    return found[min(groups, key=by_weight)] if groups else Comparison("none")


def _compare_group(
    group: str,
    statuses: Mapping[int, RankStatus],
    pending: Mapping[tuple[int, str], PendingCollective],
) -> Comparison:
    here = {rank: pending[rank, group] for rank in statuses if (rank, group) in pending}
    lowest = min(one.number for one in here.values())
    first = {rank: one for rank, one in here.items() if one.number == lowest}
    kinds = grouped({rank: _said(one) for rank, one in first.items()})
    issued = _issued(group, here, statuses)
    late = tuple(rank for rank, number in issued.items() if number < lowest)
    where = f"{parties(kinds)} of {_group(here)}, its collective {lowest}"
    if len(kinds) > 1:
        text = f"as collective {lowest} of {_group(here)} {parties(kinds)}"
        return Comparison("different", tuple(outnumbered(kinds.values())), text)
    if late:
        text = f"{where}, which {named_ranks(late)} {have(late)} not issued"
        return Comparison("not_issued", late, text)
    others = tuple(rank for rank in issued if rank not in first)
    return Comparison("completed" if others else "same", others, where)


def outnumbered(parties: Iterable[list[int]]) -> list[int]:
    """Return the party of the fewest ranks; nobody where two are as few, of which none is wrong."""
    first, second, *_ = sorted(parties, key=len)
    return first if len(first) < len(second) else []


def _issued(
    group: str, here: Mapping[int, PendingCollective], statuses: Mapping[int, RankStatus]
) -> dict[int, int]:
    """Return what each rank of a group has issued last, -1 for nothing.

    Where nobody knows its ranks: of those that have issued something there.
    """
    known = next((one.members for one in here.values() if one.members is not None), None)
    told = {rank: status.issued.get(group, -1) for rank, status in statuses.items()}
    if known is not None:
        return {rank: told[rank] for rank in statuses if rank in range(*known)}
    return {rank: number for rank, number in told.items() if number >= 0 or rank in here}


def _said(one: PendingCollective) -> str:
    # The ranks' payloads of other kinds may differ.
    return f"{one.kind} of {one.numel:,} elements" if one.kind == "all_reduce" else one.kind


def _group(here: Mapping[int, PendingCollective]) -> str:
    name = next(iter(here.values())).name
    return "the default group" if name == "default_pg" else f"group {name!r}"
