"""No bucket waits, but ranks stand in a collective of torch's that others have not come to.

    main threads in barrier, broadcast ..., the same one twice --> who has not issued it
                                                               --> HangDiagnosis

As where one rank evaluates or writes a checkpoint and the others wait for it at a barrier, or its
data comes late and they wait in DDP's forward pass for its buffers.
"""

from __future__ import annotations

from ...records.units import named_ranks
from .collectives import PendingCollective
from .issued import compare
from .messages import HangDiagnosis
from .sentences import at, busy, each
from .silent import of_silent
from .status import Placed, RankStatus
from .view import Finding, Statuses


def standing(before: RankStatus | None, now: RankStatus) -> PendingCollective | None:
    """Return the collective that a rank's training thread stood in twice, without a bucket."""
    if before is None or before.main is None or now.main is None or now.in_flight:
        return None
    if not now.collective or before.main.where != now.main.where:
        return None
    same = [one for one in now.pending or () if one in (before.pending or ())]
    return min(same, key=lambda one: one.number, default=None)


def collective_without_all(first: Statuses, last: Statuses) -> HangDiagnosis | None:
    """Return for whom ranks wait in a collective that is no hook's; ``None`` where none does."""
    waiting = {
        rank: one
        for rank, status in last.statuses.items()
        if (one := standing(first.statuses.get(rank), status)) is not None
    }
    if not waiting:
        return None
    lost = next(of_silent(last.silent, certain_only=True), None)
    comparison = compare(last.statuses)
    late = comparison.ranks if comparison is not None else ()
    if comparison is None or not (lost or comparison.verdict in {"not_issued", "different"}):
        return None
    if lost:
        found = lost
    elif comparison.verdict == "different":
        found = Finding("different_collectives", late, f": {comparison.text}")
    else:
        found = Finding("busy", late, each(late, lambda rank: busy(last.statuses[rank])))
    rank = min(waiting)
    status, one = last.statuses[rank], waiting[rank]
    model = max(status.models, key=lambda model: model.position, default=None)
    step = -1 if model is None else model.step
    # A sharded model may be within its step, in what is recorded afterwards, if at all.
    is_within = model is not None and model.unit and model.ended_step < step
    opening = (
        f"{named_ranks(waiting)} {'waits' if len(waiting) == 1 else 'wait'} in {one.kind} "
        f"{at(status)}, {'in' if is_within else 'after'} step {step},"
    )
    place = Placed(
        model="" if model is None else model.model,
        hook="" if model is None else model.hook,
        step=max(step, 0),
        bucket=-1,
    )
    age_ns = 0 if model is None else model.last_call_age_ns or 0
    return found.concluded(place, waiting, age_ns, opening, first, last)
