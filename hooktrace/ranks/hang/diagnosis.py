"""Why ranks wait, from what all of them said twice: one table of rules, the first that fits counts.

two Rounds --snapshot.py--> Snapshot --RULES--> a kind and a Finding --records/hang.py--> Hang
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...records.hang import hang_kind
from ..channel.messages import Silent
from . import rules
from .messages import Hang, RankStatus
from .rules import Finding, Finds, of_each, of_process
from .snapshot import Round, Snapshot, snapshot


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
        rules.ended_without,
        ("its step goes on", "it has made the call", "the model is not sharded"),
    ),
    Rule(
        "missing_bucket",
        of_each(rules.left_buckets_out),
        (
            *("its backward pass runs", "that ran a moment ago", "it is in another call"),
            *("it has had no bucket of the step", "the model is sharded"),
        ),
    ),
    Rule("raised", of_each(rules.raised), ("it handles nothing",), outside=True),
    Rule("uneven_inputs", of_each(rules.ends), ("it trains",), outside=True),
    # Ranks that may still come: who waits itself is not what others wait for in the end.
    Rule("busy", of_each(rules.busy), ("all that are behind wait themselves",), outside=True),
    Rule(
        "different_collectives",
        of_each(rules.in_torchs_collective),
        ("its thread moves", "the collective is a sharded model's"),
        outside=True,
    ),
    Rule("different_order", rules.crossed, ("those who wait have come to the other model's call",)),
    Rule("unknown", rules.in_other_models, ("nobody is behind",)),
    # Nobody is behind.  A tracer may have been closed early, so these come after who is.
    Rule("uneven_inputs", of_process("uneven_inputs"), ("its process runs",)),
    Rule("unknown", of_process("unknown"), ("its process is known",)),
    # All have come to the call, and it does not end.
    Rule("waits_in_callback", rules.in_callbacks, ("the callback moves", "it calls no wait")),
    Rule("unknown", rules.in_probes, ("the hook runs",)),
    Rule("different_collectives", rules.other_units, ("all are in the same one",)),
    Rule(
        "different_collectives",
        rules.torch_lists_others,
        ("torch does not tell of a rank", "ranks are in different groups"),
        outside=True,
    ),
    Rule(
        "some_ranks_only",
        rules.torch_lists_fewer,
        ("torch does not tell of a rank", "it is not in the group"),
    ),
    Rule(
        "busy",
        rules.in_own_code,
        ("all ranks are in the hook's code", "the code waits in a collective"),
    ),
    Rule(
        "never_completed",
        rules.nothing_pending,
        ("torch does not tell of a rank", "a hook has not returned"),
    ),
    Rule("unknown", rules.not_known, ()),
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
    if seen is None or seen.call is None or hub.rank not in seen.silent:
        return None
    return _first_that_fits(replace(seen, silent={hub.rank: hub}))  # nobody asked the others


def _first_that_fits(seen: Snapshot) -> Hang | None:
    """Return what the first row that fits tells; a call of a hook always fits the last one."""
    for rule in RULES:
        found = rule.finds(seen) if rule.outside or seen.call is not None else None
        if found is not None:
            return _concluded(seen, rule.kind, found)
    return None


def _concluded(seen: Snapshot, kind: str, found: Finding) -> Hang:
    front = seen.front
    excused = [one.number for one in seen.ranks if one.is_excused]
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
