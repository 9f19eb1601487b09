"""No bucket waits, but ranks stand in a collective of torch's that others have not come to.

    main threads in barrier, broadcast ..., the same one twice --> who has not issued it
                                                               --> HangDiagnosis

As where one rank evaluates or writes a checkpoint and the others wait for it at a barrier, or its
data comes late and they wait in DDP's forward pass for its buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...records.hang import hang_kind
from ...records.units import named_ranks
from ..channel.silent_rank import SilentRank
from .collectives import PendingCollective
from .conclude import HangDiagnosis
from .issued import compare
from .sentences import at, each
from .status import RankStatus
from .view import Statuses


def standing(before: RankStatus | None, now: RankStatus) -> PendingCollective | None:
    """Return the collective that a rank's training thread stood in twice, without a bucket."""
    if before is None or before.main is None or now.main is None or now.in_flight:
        return None
    doing = now.main.doing
    if not doing or not doing[-1].startswith("in ") or before.main.where != now.main.where:
        return None
    same = [one for one in now.pending or () if one in (before.pending or ())]
    return min(same, key=lambda one: one.number, default=None)


def collective_without_all(
    first: Statuses, last: Statuses, world_size: int
) -> HangDiagnosis | None:
    """Return for whom ranks wait in a collective that is no hook's; ``None`` where none does."""
    waiting = {
        rank: one
        for rank, status in last.statuses.items()
        if (one := standing(first.statuses.get(rank), status)) is not None
    }
    if not waiting:
        return None
    lost = {rank: s for rank, s in last.silent.items() if s.state not in {"ended", "unknown"}}
    comparison = compare(last.statuses)
    late = comparison.ranks if comparison is not None else ()
    if comparison is None or not (lost or comparison.verdict in {"not_issued", "different"}):
        return None
    if lost:
        return _finding(_kind_of(lost), waiting, last, lost, _silent(lost))
    if comparison.verdict == "different":
        text = f": {comparison.text}"
        return _finding("different_collectives", waiting, last, late, text)
    text = each(late, lambda rank: f"is {at(last.statuses[rank])}")
    looks = [(first.statuses.get(rank), last.statuses[rank]) for rank in late]
    excused = all(any(look is not None and look.is_excused for look in both) for both in looks)
    return _finding("busy", waiting, last, late, text, excused=excused)


def _kind_of(lost: Mapping[int, SilentRank]) -> str:
    kinds = {"gone": "died", "zombie": "died", "stopped": "stopped", "unreachable": "network"}
    found = [kinds.get(silent.state, "interpreter_held") for silent in lost.values()]
    order = ("died", "stopped", "network", "interpreter_held")
    return min(found, key=order.index)


def _silent(lost: Mapping[int, SilentRank]) -> str:
    return each(list(lost), lambda rank: f"does not answer; its process is {lost[rank].state}")


def _finding(
    kind: str,
    waiting: Mapping[int, PendingCollective],
    last: Statuses,
    late: Iterable[int],
    text: str,
    *,
    excused: bool = False,
) -> HangDiagnosis:
    rank = min(waiting)
    status, one = last.statuses[rank], waiting[rank]
    model = max(status.models, key=lambda model: model.position, default=None)
    step = -1 if model is None else model.step
    # A sharded model may be within its step, in what is recorded afterwards, if at all.
    is_within = model is not None and model.unit and model.ended_step < step
    message = (
        f"{named_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in {one.kind} "
        f"{at(status)}, {'in' if is_within else 'after'} step {step},{text}; "
        f"{hang_kind(kind).remedy}"
    )
    return HangDiagnosis(
        kind=kind,
        model="" if model is None else model.model,
        hook="" if model is None else model.hook,
        step=max(step, 0),
        bucket=-1,
        ranks=tuple(sorted(late)),
        waiting=tuple(sorted(waiting)),
        age_ns=0 if model is None else model.last_call_age_ns or 0,
        message=message,
        excused=excused,
    )
