"""Ranks that have not come to the call, and what each of them is at: asked by rows of a table.

Rank, Snapshot --> what follows "for rank 2, which"; "" where the row does not tell of the rank
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...records.units import named_ranks
from .sentences import at, counted, delay, each, ended_step, excuse, have
from .snapshot import Finding, Rank, Snapshot
from .status import CallInFlight, ModelStatus, RankStatus


def of_each(said: Callable[[Rank, Snapshot], str]) -> Callable[[Snapshot], Finding | None]:
    """Return what finds the ranks behind of which ``said`` tells something."""

    def finds(snapshot: Snapshot) -> Finding | None:
        texts = {one.number: said(one, snapshot) for one in snapshot.behind}
        found = [rank for rank, text in texts.items() if text]
        if not found:
            return None
        text = each(found, texts.__getitem__) + _not_there(found, snapshot)
        if snapshot.call is not None and snapshot.in_stage("meeting") == snapshot.waiting:
            text += "; checks of hooktrace's own wait there, before the hook is called"
        return Finding(found, text)

    return finds


def _not_there(told: Sequence[int], snapshot: Snapshot) -> str:
    """Return who else is behind, in parentheses."""
    others = [one.number for one in snapshot.behind if one.number not in told]
    return f" ({named_ranks(others)} not there either)" if others else ""


def left_buckets_out(rank: Rank, snapshot: Snapshot) -> str:
    """The rank's backward pass has ended with a part of the buckets, or DDP says that one did."""
    now, front = rank.now, snapshot.front
    model = now.model(front.model)
    if model is None or model.unit or now.main is None:
        return ""
    in_backward = rank.did is None or "backward" in (*rank.doing, *rank.did.doing)
    is_part = model.step == front.step and 0 <= model.bucket < front.bucket
    if not now.main.unreduced and (not is_part or now.in_flight or in_backward):
        return ""
    had = f"has had {counted(model.bucket + 1, 'bucket')} in step {model.step}"
    return f"{had} and went on: it is {at(now)}"


def raised(rank: Rank, snapshot: Snapshot) -> str:
    """The rank handles an exception."""
    main = rank.now.main
    if main is None or not main.exception:
        return ""
    return f"raised {main.exception} and is now {_place(rank, snapshot)}"


def ends(rank: Rank, snapshot: Snapshot) -> str:
    """The rank ends its training."""
    return f"ends its training {_place(rank, snapshot)}" if "ending" in rank.doing else ""


def busy(rank: Rank, snapshot: Snapshot) -> str:
    """The rank waits in nothing that is known."""
    if in_torchs_collective(rank, snapshot) or in_other_model(rank, snapshot):
        return ""
    if "probe" in rank.doing:
        return f"is in a check of hooktrace's own {_place(rank, snapshot)}"
    return f"is {at(rank.now)}{excuse(rank.now)}{delay(rank.now, snapshot.front)}"


def in_torchs_collective(rank: Rank, snapshot: Snapshot) -> str:
    """The rank stands in a collective of torch's own, which is none of a sharded model's."""
    main = rank.now.main
    if main is None or not main.collective or not rank.stands_still:
        return ""
    if any(call.unit for call in rank.now.in_flight):
        return ""
    return f"is in {main.collective}() {_place(rank, snapshot)}"


def in_other_model(rank: Rank, snapshot: Snapshot) -> str:
    """The rank waits in a call of another model."""
    others = [one for one in rank.now.in_flight if one.model != snapshot.front.model]
    if snapshot.call is None or not others or not (others[0].unit or "backward" in rank.doing):
        return ""
    return f"waits in {others[0].name} of step {others[0].step} of {others[0].model}"


def _place(rank: Rank, snapshot: Snapshot) -> str:
    return at(rank.now) + delay(rank.now, snapshot.front)


def crossed(snapshot: Snapshot) -> Finding | None:
    """Ranks that wait have not come to the call in which a missing rank waits."""
    for rank in snapshot.behind:
        for call in rank.now.in_flight:
            lacking = [one.number for one in snapshot.waiting if _lacks(one.now, call)]
            if call.model != snapshot.front.model and lacking:
                text = (
                    f" for rank {rank.number}, which {in_other_model(rank, snapshot)}, "
                    f"which {named_ranks(lacking)} {have(lacking)} not come to"
                )
                return Finding([one.number for one in snapshot.behind], text)
    return None


def in_other_models(snapshot: Snapshot) -> Finding | None:
    """All ranks that are behind wait in other models' calls."""
    behind = {one.number: one for one in snapshot.behind}
    if not behind:
        return None
    text = each(list(behind), lambda rank: in_other_model(behind[rank], snapshot))
    return Finding(list(behind), f"{text}; why that waits is not known")


def _lacks(status: RankStatus, call: CallInFlight) -> bool:
    position = status.position(call.model)
    return position is None or position < call.position


def ended_without(snapshot: Snapshot) -> Finding | None:
    """Ranks have ended a sharded model's step without the call that the others wait in."""
    models = {
        one.number: (one, model)
        for one in (*snapshot.past, *snapshot.behind)
        if (model := one.now.model(snapshot.front.model)) is not None
        and model.ended_without(snapshot.front)
    }
    if not models:
        return None
    text = each(list(models), lambda rank: _went_on(*models[rank]))
    return Finding(list(models), text + _not_there(list(models), snapshot))


def _went_on(rank: Rank, model: ModelStatus) -> str:
    now = f"and went on: it is {at(rank.now)}"
    if model.in_flight:
        now = f"and is in {model.name} of step {model.step}"
    return f"{ended_step(model)} {now}"
