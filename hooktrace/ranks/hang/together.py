"""No rank is behind: all have given the bucket to their hooks, and it does not come to an end.

    collectives a rank made for a bucket, stages, what torch has pending --> HangDiagnosis

What is known of single buckets tells most; then what torch says of its collectives; what is left is
the same everywhere, and then it is not known why it does not complete, but for an opaque hook whose
ranks have nothing pending.
"""

from __future__ import annotations

from collections.abc import Callable

from ...records.units import named_ranks, ordinal
from .conclude import HangDiagnosis, conclude
from .issued import Comparison, compare, outnumbered
from .sentences import at, each, ended_step
from .status import CallInFlight, ModelStatus, RankStatus
from .view import View

_PAST = {False: "had its result", True: "went past that place of the step"}
"""Said of ranks that are past a bucket, or past a sharded model's collective: what these met there
may have been another one."""

_MOST_TOLD = 2
"""Ranks of which it is said where their step is another one than the step before."""

_OWN_CODE = ("hook", "compress", "decompress")
"""Stages in which the hook's own code runs."""

_OURS = {
    "probe": ": its result is there, and hooktrace's own probe of it does not end on",
    "meeting": ": its hook has not been called, since hooktrace's own probes do not begin on",
}


def of_all(view: View) -> HangDiagnosis:
    """Return what is known where no rank is behind and all answer."""
    return next(found for rule in _RULES if (found := rule(view)) is not None)


def _looked_at(view: View) -> HangDiagnosis | None:
    """A probe of hooktrace's own is no fault of the hook's."""
    for stage, what in _OURS.items():
        probed = [rank for rank in view.waiting if view.call(rank).stage == stage]
        if probed:
            text = f"{what} {named_ranks(probed)}; pass error_every=0 and tell hooktrace's authors"
            return conclude(view, "unknown", (), text)
    return None


def _counts_differ(view: View) -> HangDiagnosis | None:
    """For the same bucket, some ranks have made fewer collectives than others, and finished."""
    made: dict[int, dict[int, int]] = {}
    finished: dict[int, dict[int, int]] = {}
    for rank, status in view.everyone.items():
        model = status.model(view.front.model)
        if model is not None and model.step == view.front.step:
            for bucket, count in model.finished:
                if count >= 0:
                    made.setdefault(bucket, {})[rank] = count
                    finished.setdefault(bucket, {})[rank] = count
            for call in model.in_flight:
                if call.step == model.step and call.stage == "wire":
                    made.setdefault(call.bucket, {})[rank] = call.rounds + 1
    for bucket in sorted(finished):
        most = max(made[bucket].values())
        fewer = [rank for rank, count in finished[bucket].items() if count < most]
        if fewer:
            more = [rank for rank, count in made[bucket].items() if count == most]
            few = min(finished[bucket].values())
            text = (
                f": for bucket {bucket} the hook issued {_count(most)} on {named_ranks(more)} and "
                f"{_count(few)} on {named_ranks(fewer)}"
            )
            return conclude(view, "some_ranks_only", fewer, text)
    return None


def _count(number: int) -> str:
    return f"{number or 'no'} collective{'' if number == 1 else 's'}"


def _other_units(view: View) -> HangDiagnosis | None:
    """Of a sharded model, at the same place of the step some ranks are in another collective."""
    others: dict[str, list[int]] = {}
    for rank, call in view.mismatched.items():
        others.setdefault(call.name, []).append(rank)
    if not others:
        return None
    number = ordinal(view.front.order + 1)
    said = ", ".join(
        f"{named_ranks(who)} {'is' if len(who) == 1 else 'are'} in {name}"
        for name, who in others.items()
    )
    text = f", while {said}: as the {number} collective of the step these do not match"
    there = [rank for rank in view.waiting if rank not in view.mismatched]
    fewest = outnumbered([there, *others.values()])
    return conclude(view, "different_collectives", fewest, text + _departures(view))


def _departures(view: View) -> str:
    """Return which ranks do not make the collectives of their step before; "" where all do that."""
    model = view.front.model
    made = {rank: s.model(model) for rank, s in view.everyone.items()}
    found = {
        rank: m.departure
        for rank, m in made.items()
        if m is not None and m.departure and m.step == view.front.step
    }
    if not 0 < len(found) < len(made):
        return ""
    return "".join(f"; rank {rank} made {text}" for rank, text in list(found.items())[:_MOST_TOLD])


def _ended_without(view: View) -> HangDiagnosis | None:
    """Of a sharded model, some ranks are past the step, which they ended with fewer collectives."""
    front = view.front
    models = {rank: status.model(front.model) for rank, status in view.past.items()}
    fewer = {
        rank: model
        for rank, model in models.items()
        if model is not None
        and model.unit
        and model.ended_step == front.step
        and model.ended_calls <= front.order
    }
    if not fewer:
        return None
    text = each(list(fewer), lambda rank: _went_on(fewer[rank]))
    return conclude(view, "different_collectives", list(fewer), text)


def _went_on(model: ModelStatus) -> str:
    now = f"{'in' if model.in_flight else 'past'} {model.name} of step {model.step}"
    return f"{ended_step(model)} and is {now}"


def _other_collectives(view: View) -> HangDiagnosis | None:
    """For the same round of a bucket the hook issued other collectives."""
    kinds: dict[str, list[int]] = {}
    rounds = set()
    for rank in view.waiting:
        call = view.call(rank)
        if call.stage == "wire" and call.collective:
            kinds.setdefault(_collective(call), []).append(rank)
            rounds.add(call.rounds)
    if len(kinds) < 2 or len(rounds) > 1:
        return None
    text = ": " + "; ".join(f"{named_ranks(who)} in {kind}" for kind, who in kinds.items())
    return conclude(view, "different_collectives", outnumbered(kinds.values()), text)


def _collective(call: CallInFlight) -> str:
    # The ranks' payloads of other kinds may differ.
    sized = f" of {call.wire_bytes:,} bytes" if call.collective == "all_reduce" else ""
    return call.collective + sized


def _in_own_code(view: View) -> HangDiagnosis | None:
    """On some ranks the hook's own code still runs, while the others have come further."""
    own = [rank for rank in view.waiting if view.call(rank).stage in _OWN_CODE]
    others = [rank for rank in view.waiting if rank not in own]
    if not own:
        return None
    told = _told_by_torch(view)
    if told is not None:
        return told
    busy = [rank for rank in own if not _in_collective(view.waiting[rank])]
    if busy and others:
        said = each(busy, lambda rank: f"is in its hook, {_place(view, rank)}")
        return conclude(view, "busy", busy, said)
    return None


def _in_collective(status: RankStatus) -> str:
    doing = () if status.main is None else status.main.doing
    return doing[-1] if doing and doing[-1].startswith("in ") else ""


def _place(view: View, rank: int) -> str:
    """Return where a hook's own code is: what follows a collective runs on a callback's thread."""
    status, stage = view.waiting[rank], view.call(rank).stage
    if stage == "decompress" and status.callbacks:
        return f"in `{status.callbacks[0].where}`, after a collective"
    return at(status)


def _told_by_torch(view: View) -> HangDiagnosis | None:
    """Return what torch's own list of collectives shows to differ between the ranks."""
    found = compare(view.everyone, view.waiting)
    if found is None:
        return None
    kind = {"different": "different_collectives", "not_issued": "some_ranks_only"}
    if found.verdict not in kind:
        return None
    if view.front.unit:  # a hook of which some ranks leave a part out is a matter of DDP's
        text = f": {found.text}{_departures(view)}"
        return conclude(view, "different_collectives", found.ranks, text)
    return conclude(view, kind[found.verdict], found.ranks, f": {found.text}")


def _without_collectives(view: View) -> HangDiagnosis | None:
    """All hooks have returned, and nothing that torch knows of is left to wait for."""
    found = compare(view.everyone, view.waiting)
    stages = {view.call(rank).stage for rank in view.waiting}
    if found is None or found.verdict != "none" or stages != {"future"}:
        return None
    text = (
        ": the hook has returned there, and torch lists no pending collective on any rank (sends "
        "and receives it does not list)"
    )
    return conclude(view, "never_completed", (), text)


def _not_known(view: View) -> HangDiagnosis:
    return conclude(
        view,
        "unknown",
        (),
        f", and why is not known: {_why(view, compare(view.everyone, view.waiting))}",
    )


def _why(view: View, found: Comparison | None) -> str:
    front = view.front
    if found is not None and found.text:
        if found.verdict == "completed":
            return f"{found.text}, completed on {named_ranks(found.ranks)} and does not here"
        return f"all have issued the same, {found.text}, and it does not complete"
    if front.stage == "wire":
        more = f", {named_ranks(view.past)} {_PAST[bool(front.unit)]}" if view.past else ""
        return f"all have issued {front.collective or 'a collective'}, it does not complete{more}"
    if found is None:
        return "the hook is opaque, and torch does not tell which collectives it waits for"
    return f"it is in stage {front.stage!r}, and torch lists no pending collective on any rank"


_RULES: tuple[Callable[[View], HangDiagnosis | None], ...] = (
    _looked_at,
    _counts_differ,
    _other_units,
    _ended_without,
    _other_collectives,
    _in_own_code,
    _told_by_torch,
    _without_collectives,
    _not_known,
)
