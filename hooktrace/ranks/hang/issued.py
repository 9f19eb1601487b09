"""What torch knows of the ranks' collectives, put side by side.

RankStatus.pending, .issued of all ranks --first group that tells--> Comparison
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from ...records.units import named_ranks
from .collectives import PendingCollective
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


def compare(statuses: Mapping[int, RankStatus]) -> Comparison | None:
    """Compare the oldest pending collective of each group; ``None`` where a rank does not tell."""
    if any(status.pending is None for status in statuses.values()):
        return None
    pending = {
        (rank, one.group): one
        for rank, status in statuses.items()
        for one in sorted(status.pending or (), key=lambda one: -one.number)
    }  # the lowest number of each rank and group
    groups = sorted({group for _, group in pending})
    found = [_compare_group(group, statuses, pending) for group in groups]
    telling = ("different", "not_issued", "completed", "same")
    return min(found, key=lambda c: telling.index(c.verdict), default=Comparison("none"))


def _compare_group(
    group: str,
    statuses: Mapping[int, RankStatus],
    pending: Mapping[tuple[int, str], PendingCollective],
) -> Comparison:
    here = {rank: pending[rank, group] for rank in statuses if (rank, group) in pending}
    lowest = min(one.number for one in here.values())
    first = {rank: one for rank, one in here.items() if one.number == lowest}
    kinds: dict[str, list[int]] = {}
    for rank, one in first.items():
        kinds.setdefault(_said(one), []).append(rank)
    issued = {rank: status.issued.get(group, -1) for rank, status in statuses.items()}
    late = tuple(rank for rank, number in issued.items() if number < lowest)
    said = "; ".join(f"{named_ranks(who)} in {kind}" for kind, who in kinds.items())
    if len(kinds) > 1:
        fewest = min(kinds.values(), key=len)
        text = f"as collective {lowest} of {_group(here)} {said}"
        return Comparison("different", tuple(fewest), text)
    if late:
        text = f"{said} of {_group(here)}, its collective {lowest}, which {named_ranks(late)} "
        text += f"{'has' if len(late) == 1 else 'have'} not issued"
        return Comparison("not_issued", late, text)
    others = tuple(rank for rank in statuses if rank not in first)
    text = f"{said} of {_group(here)}, its collective {lowest}"
    return Comparison("completed" if others else "same", others, text)


def _said(one: PendingCollective) -> str:
    # The ranks' payloads of other kinds may differ.
    return f"{one.kind} of {one.numel:,} elements" if one.kind == "all_reduce" else one.kind


def _group(here: Mapping[int, PendingCollective]) -> str:
    name = next(iter(here.values())).name
    return "the default group" if name == "default_pg" else f"group {name!r}"
