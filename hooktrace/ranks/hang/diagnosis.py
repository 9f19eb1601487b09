"""Why ranks wait, from what all of them said twice: one table of rules, the first that fits counts.

two Rounds --snapshot.py--> Snapshot --RULES--> a kind and a Finding --records/hang.py--> Hang

A rule returns a Finding, the ranks that are waited for and what is told of them, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...records.hang import hang_kind
from ...records.units import counted, named_ranks, ordinal
from ..channel.messages import Silent, State
from .collectives import grouped, have, outnumbered
from .messages import EXCUSES, CallInFlight, Hang, Placed, RankStatus
from .snapshot import Place, Rank, Round, Snapshot, snapshot

_MOST_TOLD = 4
"""Ranks of each of which something else is told; of more, how many."""


class Finding(NamedTuple):
    """The ``ranks`` that are waited for, if known; ``text`` goes on after the ``opening``."""

    ranks: Sequence[int]
    text: str


Finds = Callable[[Snapshot], Finding | None]


def _each_of(texts: Mapping[int, str], snapshot: Snapshot) -> Finding | None:
    """Return " for ranks 2 to 4: each of ranks 2, 3 is here; rank 4 is there", and who is behind.

    ``texts``: "is here" of each rank; one of which it is "" is not told of.
    """
    told = {rank: text for rank, text in texts.items() if text}
    if not told:
        return None
    parts = [
        f"{'each of ' if len(who) > 1 else ''}{named_ranks(who)} {text}"
        for text, who in grouped(told).items()
    ]
    said = ": " + "; ".join(parts[:_MOST_TOLD])
    if len(parts) == 1:
        said = f", {'which' if len(told) == 1 else 'each of which'} {next(iter(told.values()))}"
    elif len(parts) > _MOST_TOLD:
        said += f"; and {len(parts) - _MOST_TOLD} more"
    behind = [one.number for one in snapshot.ranks if one.place == "behind"]
    others = [rank for rank in behind if rank not in told]
    if others:
        said += f" ({named_ranks(others)} {have(others)} not come to it either)"
    return Finding(list(told), f" for {named_ranks(told)}{said}")


# Ranks that do not answer: what their processes tell.

PROCESSES: dict[State, tuple[str, str]] = {
    "gone": ("died", "is no more: its {process} is gone"),
    "stopped": ("stopped", "stands still: its {process} is stopped by a signal"),
    "unreachable": ("network", "cannot be reached{why}, nor can its {process}"),
    "running": ("interpreter_held", "answers nothing, although its {process} is running"),
    "ended": ("uneven_inputs", "has ended, or has closed its tracer, in order"),
    "unknown": ("unknown", "does not answer{why}, and nothing more is known of it"),
}
"""By the state of a process whose rank does not answer: the kind of hang, and what is told."""


def of_process(kind: str) -> Finds:
    """Return what finds the silent ranks whose processes are in a state of that kind."""

    def finds(snapshot: Snapshot) -> Finding | None:
        silent = snapshot.silent.items()
        of_kind = {rank: _told(one) for rank, one in silent if PROCESSES[one.state][0] == kind}
        return _each_of(of_kind, snapshot)

    return finds


def _told(silent: Silent) -> str:
    why = f" ({silent.why})" if silent.why else ""
    pid, host = silent.member.pid, silent.member.host
    process = f"process (pid {pid}{' on ' + host if host else ''})" if pid else "process"
    return PROCESSES[silent.state][1].format(process=process, why=why)


def hub_is_gone(hub: Silent) -> str:
    """Return what is known of a hub on rank 0 that answers nothing any more, and what to do."""
    kind, _ = PROCESSES[hub.state]
    fix = "look at what rank 0 wrote last" if kind == "unknown" else hang_kind(kind).fix
    return f"rank 0 {_told(hub)}; DDP does not go on without it; {fix}"


# Ranks that have not come to the call: what each of them is at.


def of_each(said: Callable[[Rank, Snapshot], str], *places: Place) -> Finds:
    """Return what finds the ranks behind, or in some ``places``, of which ``said`` tells."""
    asked = places or ("behind",)
    return lambda snapshot: _each_of(
        {one.number: said(one, snapshot) for one in snapshot.ranks if one.place in asked}, snapshot
    )


def ended_without(rank: Rank, snapshot: Snapshot) -> str:
    """The rank has ended a sharded model's step without the call that the others wait in."""
    model, front = rank.model, snapshot.front
    if model is None or not model.unit or model.ended_step != front.step:
        return ""
    if model.ended_calls > front.order:
        return ""
    now = f"went on: it is {rank.now.at}"
    if model.in_flight:
        now = f"is in {model.name} of step {model.step}"
    calls = counted(model.ended_calls, "collective")
    made = f", made {model.departure}," if model.departed_step == front.step else ""
    return f"has ended step {model.ended_step} with {calls}{made} and {now}"


def left_buckets_out(rank: Rank, snapshot: Snapshot) -> str:
    """The rank's backward pass has ended with a part of the buckets."""
    now, front, model = rank.now, snapshot.front, rank.model
    if model is None or model.unit or now.in_flight or not rank.before.main.where:
        return ""
    in_backward = "backward" in (*now.main.doing, *rank.before.main.doing)
    if in_backward or model.step != front.step or not 0 <= model.bucket < front.bucket:
        return ""
    had = f"has had {counted(model.bucket + 1, 'bucket')} in step {model.step}"
    return f"{had} and went on: it is {now.at}"


def raised(rank: Rank, snapshot: Snapshot) -> str:
    """The rank handles an exception."""
    main = rank.now.main
    if not main.exception:
        return ""
    return f"raised {main.exception} and is now {_place(rank, snapshot)}"


def ends(rank: Rank, snapshot: Snapshot) -> str:
    """The rank ends its training."""
    return f"ends its training {_place(rank, snapshot)}" if "ending" in rank.now.main.doing else ""


def busy(rank: Rank, snapshot: Snapshot) -> str:
    """The rank waits in nothing that is known."""
    if in_torchs_collective(rank, snapshot) or in_other_model(rank, snapshot):
        return ""
    if "probe" in rank.now.main.doing:
        return f"is in a check of hooktrace's own {_place(rank, snapshot)}"
    return f"is {rank.now.at}{_excuse(rank.now)}{_delay(rank, snapshot.front)}"


def in_torchs_collective(rank: Rank, snapshot: Snapshot) -> str:
    """The rank stands in a collective of torch's own, which is none of a sharded model's."""
    main, did = rank.now.main, rank.before.main
    if not main.collective or (main.where, main.collective) != (did.where, did.collective):
        return ""
    if any(call.unit for call in rank.now.in_flight):
        return ""
    return f"is in {main.collective}() {_place(rank, snapshot)}"


def in_other_model(rank: Rank, snapshot: Snapshot) -> str:
    """The rank waits in a call of another model."""
    others = _other_calls(rank, snapshot)
    return _waits_in(others[0]) if others else ""


def crossed(rank: Rank, snapshot: Snapshot) -> str:
    """The rank waits in a call of another model, which those who wait for it have not come to."""
    for call in _other_calls(rank, snapshot):
        places = {one.number: one.now.position(call.model) for one in snapshot.waiting}
        lacking = [who for who, at in places.items() if at is None or at < call.position]
        if lacking:
            return f"{_waits_in(call)}, which {named_ranks(lacking)} {have(lacking)} not come to"
    return ""


def _other_calls(rank: Rank, snapshot: Snapshot) -> list[CallInFlight]:
    others = [one for one in rank.now.in_flight if one.model != snapshot.front.model]
    if not snapshot.calls or not others:
        return []
    return others if others[0].unit or "backward" in rank.now.main.doing else []


def _waits_in(call: CallInFlight) -> str:
    return f"waits in {call.name} of step {call.step} of {call.model}"


def _place(rank: Rank, snapshot: Snapshot) -> str:
    return rank.now.at + _delay(rank, snapshot.front)


def _excuse(status: RankStatus) -> str:
    """Return why it may take long where a rank is: " and saves there"; "" where nothing says so."""
    known = next((text for one, text in EXCUSES.items() if one in status.main.doing), "")
    said = f" and {known} there" if known else ""
    return said + (" and has paused the watchdog" if status.paused else "")


def _delay(rank: Rank, front: Placed) -> str:
    """Return how far a rank is behind a call: ", 1 step behind"; "" where it never began."""
    model = rank.model
    if front.bucket < 0 or model is None or model.step < 0:
        return ""
    (step, at), (own_step, own) = front.position, model.position
    what = "collective" if front.unit else "bucket"
    behind = (step - own_step, "step") if step != own_step else (at - own, what)
    return f", {counted(*behind)} behind"


# All have come to the call, and it does not end.


def in_callbacks(snapshot: Snapshot) -> Finding | None:
    """Threads that have to complete collectives wait for one."""
    ranks = (one for one in snapshot.ranks if one.place != "behind")
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


def in_probes(snapshot: Snapshot) -> Finding | None:
    """Hooktrace's own checks, before the hook is called or after it, hold the bucket up."""
    ranks = [one.number for one in snapshot.in_stage("meeting", "check")]
    text = (
        f": hooktrace's own check of it does not end on {named_ranks(ranks)}; pass error_every=0 "
        "and tell hooktrace's authors"
    )
    return Finding((), text) if ranks else None


def other_units(snapshot: Snapshot) -> Finding | None:
    """At the same place of a sharded model's step ranks are in different collectives."""
    others = grouped({rank: call.name for rank, call in snapshot.calls.items()})
    matching = others.pop(snapshot.front.name, [])
    if not others:
        return None
    said = ", ".join(
        f"{named_ranks(who)} {'is' if len(who) == 1 else 'are'} in {name}"
        for name, who in others.items()
    )
    number = ordinal(snapshot.front.order + 1)
    text = f", while {said}: as the {number} collective of the step these do not match"
    return Finding(outnumbered([matching, *others.values()]), text + _departures(snapshot))


def _departures(snapshot: Snapshot) -> str:
    """Return which ranks do not make the collectives of their step before; "" where all do that."""
    found = [
        f"; rank {one.number} made {model.departure}"
        for one in snapshot.ranks
        if (model := one.model) and model.departed_step == snapshot.front.step
    ]
    return "".join(found[:_MOST_TOLD]) if len(found) < len(snapshot.ranks) else ""


def torch_lists(*verdicts: str, sharded: str = "") -> Finds:
    """Return what finds ranks whose collectives differ; ``sharded``: a sharded model's verdict."""

    def finds(snapshot: Snapshot) -> Finding | None:
        found, unit = snapshot.comparison, snapshot.front.unit
        if found.verdict not in verdicts and not (unit and found.verdict == sharded):
            return None
        return Finding(found.ranks, f": {found.text}{_departures(snapshot) if unit else ''}")

    return finds


def in_own_code(snapshot: Snapshot) -> Finding | None:
    """On some ranks the hook's own code still runs, while the others have come further."""
    own = snapshot.in_stage("hook", "compress", "decompress")
    if len(own) == len(snapshot.waiting):
        return None
    return _each_of({one.number: _in_hook(one) for one in own}, snapshot)


def _in_hook(rank: Rank) -> str:
    """Return where a hook's own code is: what follows a collective runs on a callback's thread."""
    main, callbacks = rank.now.main, rank.now.callbacks
    if main.collective:
        return ""
    if rank.call is not None and rank.call.stage == "decompress" and callbacks:
        return f"is in its hook, in `{callbacks[0].where}`, after a collective"
    return f"is in its hook, {rank.now.at}{_excuse(rank.now)}"


def nothing_pending(snapshot: Snapshot) -> Finding | None:
    """All hooks have returned, and nothing is left to wait for."""
    stages = {call.stage for call in snapshot.calls.values()}
    if snapshot.comparison.verdict != "none" or stages != {"future_wait"}:
        return None
    text = (
        ": the hook has returned there, and torch lists no pending collective on any rank "
        "(sends and receives it does not list)"
    )
    return Finding((), text)


def not_known(snapshot: Snapshot) -> Finding:
    """No difference between the ranks is known."""
    found = snapshot.comparison
    if found.verdict == "completed":
        known = f"{found.text}, completed on {named_ranks(found.ranks)} and does not here"
    elif found.text:
        known = f"all have issued the same, {found.text}, and it does not complete"
    else:
        stages = sorted({call.stage for call in snapshot.calls.values()})
        lists = "lists no pending collective on any rank"
        if found.verdict == "untold":
            lists = "does not tell which collective each rank is in"
        known = f"it is in stage {' or '.join(stages)}, and torch {lists}"
    return Finding((), f", and why is not known: {known}")


class Rule(NamedTuple):
    """``finds`` returns what is the case; ``None`` where the row does not fit.

    ``not_where``: runs in which it must not fit.  ``outside``: also outside of hooks.
    """

    kind: str
    finds: Finds
    not_where: tuple[str, ...]
    outside: bool = False


RULES = (
    # Ranks that do not answer: what their processes tell.
    Rule("died", of_process("died"), ("its process is there",), outside=True),
    Rule("stopped", of_process("stopped"), ("its process runs",), outside=True),
    Rule("network", of_process("network"), ("its host answers",), outside=True),
    Rule("interpreter_held", of_process("interpreter_held"), ("nobody looks at it",), outside=True),
    # Ranks that will not come to the call.
    Rule(
        "different_collectives",
        of_each(ended_without, "past", "behind"),
        ("its step goes on", "it has made the call", "the model is not sharded"),
    ),
    Rule(
        "missing_bucket",
        of_each(left_buckets_out),
        (
            *("its backward pass runs", "that ran a moment ago", "it is in another call"),
            *("it has had no bucket of the step", "the model is sharded"),
        ),
    ),
    Rule("raised", of_each(raised), ("it handles nothing",), outside=True),
    Rule("uneven_inputs", of_each(ends), ("it trains",), outside=True),
    # Ranks that may still come: who waits itself is not what others wait for in the end.
    Rule("busy", of_each(busy), ("all that are behind wait themselves",), outside=True),
    Rule(
        "different_collectives",
        of_each(in_torchs_collective),
        ("its thread moves", "the collective is a sharded model's"),
        outside=True,
    ),
    Rule(
        "different_order",
        of_each(crossed),
        ("those who wait have come to the other model's call",),
    ),
    Rule("unknown", of_each(in_other_model), ("nobody is behind",)),
    # Nobody is behind.  A tracer may have been closed early, so these come after who is.
    Rule("uneven_inputs", of_process("uneven_inputs"), ("its process runs",)),
    Rule("unknown", of_process("unknown"), ("its process is known",)),
    # All have come to the call, and it does not end.
    Rule("waits_in_callback", in_callbacks, ("the callback moves", "it calls no wait")),
    Rule("unknown", in_probes, ("the hook runs",)),
    Rule("different_collectives", other_units, ("all are in the same one",)),
    Rule(
        "different_collectives",
        torch_lists("different", sharded="not_issued"),
        ("torch does not tell of a rank", "ranks are in different groups"),
        outside=True,
    ),
    Rule(
        "some_ranks_only",
        torch_lists("not_issued"),
        ("torch does not tell of a rank", "it is not in the group"),
    ),
    Rule(
        "busy",
        in_own_code,
        ("all ranks are in the hook's code", "the code waits in a collective"),
    ),
    Rule(
        "never_completed",
        nothing_pending,
        ("torch does not tell of a rank", "a hook has not returned"),
    ),
    Rule("unknown", not_known, ()),
)
"""The first row that fits counts, and the rows below it rely on that."""


def diagnose(first: Round, last: Round, world_size: int) -> Hang | None:
    """Return why ranks wait, by two rounds about a second apart; ``None`` where none does."""
    seen = snapshot(first, last, world_size)
    return None if seen is None else _first_that_fits(seen)


def waits_without_hub(own: RankStatus, hub: Silent, world_size: int) -> Hang | None:
    """Return why this rank's call waits, as far as it knows alone, if the hub has a part in it."""
    here = Round({own.rank: own}, {hub.rank: hub})
    seen = snapshot(here, here, world_size)
    if seen is None or not seen.calls or hub.rank not in seen.silent:
        return None
    return _first_that_fits(replace(seen, silent={hub.rank: hub}))  # nobody asked the others


def _first_that_fits(seen: Snapshot) -> Hang | None:
    """Return what the first row that fits tells; a call of a hook always fits the last one."""
    for rule in RULES:
        found = rule.finds(seen) if rule.outside or seen.calls else None
        if found is not None:
            return _concluded(seen, rule.kind, found)
    return None


def _concluded(seen: Snapshot, kind: str, found: Finding) -> Hang:
    front = seen.front
    excused = [one.number for one in seen.ranks if one.now.is_excused or one.before.is_excused]
    return Hang(
        kind=kind,
        model=front.model,
        hook=front.hook,
        step=front.step,
        bucket=front.bucket,
        ranks=tuple(sorted(found.ranks)),
        waiting=tuple(sorted(one.number for one in seen.waiting)),
        age_ns=seen.age_ns,
        message=f"{seen.opening}{found.text}; {hang_kind(kind).fix_of(front.unit)}",
        excused=kind == "busy" and all(rank in excused for rank in found.ranks),
        unit=front.unit,
        order=front.order,
    )
