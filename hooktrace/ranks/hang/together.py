"""All ranks have come to the call, and it does not end: what rows of ``diagnosis.py`` ask then.

Nobody is behind, and nobody silent: the rows above have told of these.
"""

from __future__ import annotations

from ...records.units import named_ranks, ordinal
from .issued import outnumbered
from .sentences import at, counted, each, excuse, grouped, parties
from .snapshot import Finding, Rank, Snapshot

_MOST_TOLD = 2
"""Ranks of which it is said where their step is another one than the step before."""


def in_callbacks(snapshot: Snapshot) -> Finding | None:
    """Threads that have to complete collectives wait for one."""
    ranks = (*snapshot.waiting, *snapshot.past)
    rank = max(ranks, key=lambda one: len(one.waiting_callbacks), default=None)
    if rank is None or not rank.waiting_callbacks:
        return None
    one_each = [f"{thread.name} in `{thread.where}`" for thread in rank.waiting_callbacks]
    threads = "a callback waits" if len(one_each) == 1 else f"{len(one_each)} callbacks wait"
    text = (
        f": on rank {rank.number} {threads} for a collective, {', '.join(one_each)}, on threads "
        "that have to complete collectives"
    )
    return Finding((), text)


_OURS = {
    "probe": ": its result is there, and hooktrace's own check of it does not end on",
    "meeting": ": its hook has not been called, since hooktrace's own checks do not begin on",
}


def in_probes(snapshot: Snapshot) -> Finding | None:
    """A probe of hooktrace's own holds the bucket up."""
    for stage, what in _OURS.items():
        ranks = [one.number for one in snapshot.in_stage(stage)]
        if ranks:
            said = f"{what} {named_ranks(ranks)}; pass error_every=0 and tell hooktrace's authors"
            return Finding((), said)
    return None


def fewer_rounds(snapshot: Snapshot) -> Finding | None:
    """For the same bucket some ranks have made fewer collectives than others, and finished."""
    made: dict[int, dict[int, int]] = {}
    finished: dict[int, dict[int, int]] = {}
    for one in (*snapshot.waiting, *snapshot.past):
        model = one.now.model(snapshot.front.model)
        if model is None or model.step != snapshot.front.step:
            continue
        for bucket, count in model.finished:
            if count >= 0:
                made.setdefault(bucket, {})[one.number] = count
                finished.setdefault(bucket, {})[one.number] = count
        for call in model.in_flight:
            if call.step == model.step and call.stage == "wire":
                made.setdefault(call.bucket, {})[one.number] = call.rounds + 1
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
            return Finding(fewer, text)
    return None


def other_units(snapshot: Snapshot) -> Finding | None:
    """At the same place of a sharded model's step ranks are in different collectives."""
    others = grouped({rank: call.name for rank, call in snapshot.mismatched.items()})
    if not others:
        return None
    said = ", ".join(
        f"{named_ranks(who)} {'is' if len(who) == 1 else 'are'} in {name}"
        for name, who in others.items()
    )
    number = ordinal(snapshot.front.order + 1)
    text = f", while {said}: as the {number} collective of the step these do not match"
    matching = [rank for rank in snapshot.calls if rank not in snapshot.mismatched]
    return Finding(outnumbered([matching, *others.values()]), text + _departures(snapshot))


def _departures(snapshot: Snapshot) -> str:
    """Return which ranks do not make the collectives of their step before; "" where all do that."""
    ranks = (*snapshot.waiting, *snapshot.past)
    models = {one.number: one.now.model(snapshot.front.model) for one in ranks}
    found = [
        f"; rank {rank} made {model.departure}"
        for rank, model in models.items()
        if model is not None and model.departure and model.step == snapshot.front.step
    ]
    return "".join(found[:_MOST_TOLD]) if len(found) < len(models) else ""


def torch_lists_others(snapshot: Snapshot) -> Finding | None:
    """Ranks have issued different collectives; some have issued fewer, of a sharded model."""
    found, unit = snapshot.comparison, snapshot.front.unit
    told = ("different", "not_issued") if unit else ("different",)
    if found is None or found.verdict not in told:
        return None
    return Finding(found.ranks, f": {found.text}{_departures(snapshot) if unit else ''}")


def torch_lists_fewer(snapshot: Snapshot) -> Finding | None:
    """Some ranks have not issued the collective that others wait in."""
    found = snapshot.comparison
    if found is None or found.verdict != "not_issued":
        return None
    return Finding(found.ranks, f": {found.text}")


def in_own_code(snapshot: Snapshot) -> Finding | None:
    """On some ranks the hook's own code still runs, while the others have come further."""
    own = snapshot.in_stage("hook", "compress", "decompress")
    busy = {one.number: one for one in own if one.now.main is None or not one.now.main.collective}
    if not busy or len(own) == len(snapshot.waiting):
        return None
    return Finding(list(busy), each(list(busy), lambda rank: _in_hook(busy[rank])))


def _in_hook(rank: Rank) -> str:
    """Return where a hook's own code is: what follows a collective runs on a callback's thread."""
    callbacks = rank.now.callbacks
    if rank.call is not None and rank.call.stage == "decompress" and callbacks:
        return f"is in its hook, in `{callbacks[0].where}`, after a collective"
    return f"is in its hook, {at(rank.now)}{excuse(rank.now)}"


def nothing_pending(snapshot: Snapshot) -> Finding | None:
    """All hooks have returned, and nothing is left to wait for."""
    found = snapshot.comparison
    stages = {call.stage for call in snapshot.calls.values()}
    if found is None or found.verdict != "none" or stages != {"future"}:
        return None
    text = (
        ": the hook has returned there, and torch lists no pending collective on any rank "
        "(sends and receives it does not list)"
    )
    return Finding((), text)


def not_known(snapshot: Snapshot) -> Finding:
    """No difference between the ranks is known."""
    return Finding((), f", and why is not known: {_what_is_known(snapshot)}")


def _what_is_known(snapshot: Snapshot) -> str:
    found, call = snapshot.comparison, snapshot.call
    if found is not None and found.verdict == "completed":
        return f"{found.text}, completed on {named_ranks(found.ranks)} and does not here"
    if found is not None and found.text:
        return f"all have issued the same, {found.text}, and it does not complete"
    if call is not None and call.stage == "wire":
        ranks = {one.number: one.call for one in snapshot.in_stage("wire") if one.call is not None}
        kinds = grouped({rank: one.collective or "a collective" for rank, one in ranks.items()})
        return f"{parties(kinds)}, which does not complete{_past(snapshot)}"
    if found is None or call is None:
        return "the hook is a plain one, and torch does not tell which collectives it waits for"
    return f"it is in stage {call.stage!r}, and torch lists no pending collective on any rank"


def _past(snapshot: Snapshot) -> str:
    """Return who is past a bucket, or past a collective's place, where it may have met another."""
    if not snapshot.past:
        return ""
    did = "went past that place of the step" if snapshot.front.unit else "had its result"
    return f", {named_ranks([one.number for one in snapshot.past])} {did}"
