"""No rank is behind: all have given the bucket to their hooks, and it does not come to an end.

    collectives a rank made for a bucket, stages, what torch has pending --> Finding

What is known of single buckets tells most; then what torch says of its collectives; what is left is
the same everywhere, and then it is not known why it does not complete, but for an opaque hook whose
ranks have nothing pending.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records.units import named_ranks, ordinal
from .issued import compare, outnumbered
from .sentences import at, counted, each, ended_step, grouped, parties
from .status import CallInFlight, ModelStatus
from .view import Finding, View

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

_KINDS = {"different": "different_collectives", "not_issued": "some_ranks_only"}
"""By what torch's own list of collectives tells, where that is not the same on all ranks."""


def _looked_at(view: View) -> Iterator[Finding]:
    """A probe of hooktrace's own is no fault of the hook's."""
    for stage, what in _OURS.items():
        probed = view.in_stage(stage)
        if probed:
            text = f"{what} {named_ranks(probed)}; pass error_every=0 and tell hooktrace's authors"
            yield Finding("unknown", (), text)


def _counts_differ(view: View) -> Iterator[Finding]:
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
        most, few = max(made[bucket].values()), min(finished[bucket].values())
        fewer = [rank for rank, count in finished[bucket].items() if count < most]
        more = [rank for rank, count in made[bucket].items() if count == most]
        if fewer:
            text = (
                f": for bucket {bucket} the hook issued {counted(most, 'collective')} on "
                f"{named_ranks(more)} and {counted(few or 'no', 'collective')} on "
                f"{named_ranks(fewer)}"
            )
            yield Finding("some_ranks_only", fewer, text)


def _other_units(view: View) -> Iterator[Finding]:
    """Of a sharded model, at the same place of the step some ranks are in another collective."""
    others = grouped({rank: call.name for rank, call in view.mismatched.items()})
    if others:
        said = ", ".join(
            f"{named_ranks(who)} {'is' if len(who) == 1 else 'are'} in {name}"
            for name, who in others.items()
        )
        number = ordinal(view.front.order + 1)
        text = f", while {said}: as the {number} collective of the step these do not match"
        fewest = outnumbered([view.matching, *others.values()])
        yield Finding("different_collectives", fewest, text + _departures(view))


def _departures(view: View) -> str:
    """Return which ranks do not make the collectives of their step before; "" where all do that."""
    made = {rank: status.model(view.front.model) for rank, status in view.everyone.items()}
    found = [
        f"; rank {rank} made {model.departure}"
        for rank, model in made.items()
        if model is not None and model.departure and model.step == view.front.step
    ]
    return "".join(found[:_MOST_TOLD]) if len(found) < len(made) else ""


def _ended_without(view: View) -> Iterator[Finding]:
    """Of a sharded model, some ranks are past the step, which they ended with fewer collectives."""
    models = {rank: status.model(view.front.model) for rank, status in view.past.items()}
    fewer = {
        rank: _went_on(model)
        for rank, model in models.items()
        if model is not None and model.ended_without(view.front)
    }
    if fewer:
        yield Finding("different_collectives", fewer, each(list(fewer), fewer.__getitem__))


def _went_on(model: ModelStatus) -> str:
    now = f"{'in' if model.in_flight else 'past'} {model.name} of step {model.step}"
    return f"{ended_step(model)} and is {now}"


def _other_collectives(view: View) -> Iterator[Finding]:
    """For the same round of a bucket the hook issued other collectives."""
    calls = {rank: view.call(rank) for rank in view.in_stage("wire")}
    known = {rank: call for rank, call in calls.items() if call.collective}
    kinds = grouped({rank: _collective(call) for rank, call in known.items()})
    if len(kinds) > 1 and len({call.rounds for call in known.values()}) == 1:
        yield Finding("different_collectives", outnumbered(kinds.values()), f": {parties(kinds)}")


def _collective(call: CallInFlight) -> str:
    # The ranks' payloads of other kinds may differ.
    sized = f" of {call.wire_bytes:,} bytes" if call.collective == "all_reduce" else ""
    return call.collective + sized


def _in_own_code(view: View) -> Iterator[Finding]:
    """On some ranks the hook's own code still runs, while the others have come further."""
    own = view.in_stage(*_OWN_CODE)
    if own:
        yield from _told_by_torch(view)
    busy = [rank for rank in own if not view.waiting[rank].collective]
    if busy and len(own) < len(view.waiting):
        yield Finding(
            "busy", busy, each(busy, lambda rank: f"is in its hook, {_place(view, rank)}")
        )


def _place(view: View, rank: int) -> str:
    """Return where a hook's own code is: what follows a collective runs on a callback's thread."""
    status, stage = view.waiting[rank], view.call(rank).stage
    if stage == "decompress" and status.callbacks:
        return f"in `{status.callbacks[0].where}`, after a collective"
    return at(status)


def _told_by_torch(view: View) -> Iterator[Finding]:
    """Return what torch's own list of collectives shows to differ between the ranks."""
    found = compare(view.everyone, view.waiting)
    if found is None or found.verdict not in _KINDS:
        return
    if view.front.unit:  # a hook of which some ranks leave a part out is a matter of DDP's
        text = f": {found.text}{_departures(view)}"
        yield Finding("different_collectives", found.ranks, text)
    yield Finding(_KINDS[found.verdict], found.ranks, f": {found.text}")


def _nothing_differs(view: View) -> Iterator[Finding]:
    """All hooks have returned and nothing is left to wait for, or it is not known why they wait."""
    found = compare(view.everyone, view.waiting)
    stages = {view.call(rank).stage for rank in view.waiting}
    if found is not None and found.verdict == "none" and stages == {"future"}:
        text = (
            ": the hook has returned there, and torch lists no pending collective on any rank "
            "(sends and receives it does not list)"
        )
        yield Finding("never_completed", (), text)
    front = view.front
    if found is not None and found.verdict == "completed":
        why = f"{found.text}, completed on {named_ranks(found.ranks)} and does not here"
    elif found is not None and found.text:
        why = f"all have issued the same, {found.text}, and it does not complete"
    elif front.stage == "wire":
        more = f", {named_ranks(view.past)} {_PAST[bool(front.unit)]}" if view.past else ""
        why = f"all have issued {front.collective or 'a collective'}, it does not complete{more}"
    elif found is None:
        why = "the hook is opaque, and torch does not tell which collectives it waits for"
    else:
        why = f"it is in stage {front.stage!r}, and torch lists no pending collective on any rank"
    yield Finding("unknown", (), f", and why is not known: {why}")


RULES = (
    _looked_at,
    _counts_differ,
    _other_units,
    _ended_without,
    _other_collectives,
    _in_own_code,
    _told_by_torch,
    _nothing_differs,
)
