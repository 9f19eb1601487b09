"""Why ranks wait: one table of rules over a snapshot, of which the first that fits counts.

    Snapshot --RULES--> kind, and a Finding: which ranks are waited for, and what is told of them

What to do about a kind is in its own table (``records/hang.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import late, together
from .silent import of_process
from .snapshot import Finding, Snapshot


class Rule(NamedTuple):
    """``finds`` returns what is the case; ``None`` where the row does not fit.

    ``not_where``: the runs that come near, and in which it must not fit.  ``outside``: the row is
    for collectives outside of hooks, too.
    """

    kind: str
    finds: Callable[[Snapshot], Finding | None]
    not_where: tuple[str, ...]
    outside: bool = False


def first_that_fits(snapshot: Snapshot) -> tuple[str, Finding] | None:
    """Return the kind and what is found; a call of a hook always fits the last row."""
    for rule in RULES:
        if rule.outside or snapshot.call is not None:
            found = rule.finds(snapshot)
            if found is not None:
                return rule.kind, found
    return None


RULES = (
    # Ranks that do not answer: what their processes tell.
    Rule("died", of_process("died"), ("its process is there",), outside=True),
    Rule("stopped", of_process("stopped"), ("its process runs",), outside=True),
    Rule("network", of_process("network"), ("its host answers",), outside=True),
    Rule(
        "interpreter_held",
        of_process("interpreter_held"),
        ("nobody looks at its process",),
        outside=True,
    ),
    # Ranks that will not come to the call.
    Rule(
        "different_collectives",
        late.ended_without,
        ("its step goes on", "it has made the call", "the model is not sharded"),
    ),
    Rule(
        "missing_bucket",
        late.of_each(late.left_buckets_out),
        (
            *("its backward pass runs", "that ran a moment ago", "it is in another call"),
            *("it has had no bucket of the step", "the model is sharded"),
        ),
    ),
    Rule("raised", late.of_each(late.raised), ("it handles nothing",), outside=True),
    Rule("uneven_inputs", late.of_each(late.ends), ("it trains",), outside=True),
    # Ranks that may still come: who waits itself is not what others wait for in the end.
    Rule("busy", late.of_each(late.busy), ("all that are behind wait themselves",), outside=True),
    Rule(
        "different_collectives",
        late.of_each(late.in_torchs_collective),
        ("its thread moves", "the collective is a sharded model's"),
        outside=True,
    ),
    Rule("different_order", late.crossed, ("those who wait have come to the other model's call",)),
    Rule("unknown", late.in_other_models, ("nobody is behind",)),
    # Nobody is behind.  A tracer may have been closed early, so these come after who is.
    Rule("uneven_inputs", of_process("uneven_inputs"), ("its process runs",)),
    Rule("unknown", of_process("unknown"), ("its process is known",)),
    # All have come to the call, and it does not end.
    Rule("waits_in_callback", together.in_callbacks, ("the callback moves", "it calls no wait")),
    Rule("unknown", together.in_probes, ("the hook runs",)),
    Rule("some_ranks_only", together.fewer_rounds, ("the hook is opaque", "as many on all ranks")),
    Rule("different_collectives", together.other_units, ("all are in the same one",)),
    Rule(
        "different_collectives",
        together.other_collectives,
        ("ranks are in different rounds", "what is gathered differs in size"),
    ),
    Rule(
        "different_collectives",
        together.torch_lists_others,
        ("torch does not tell of a rank", "ranks are in different groups"),
        outside=True,
    ),
    Rule(
        "some_ranks_only",
        together.torch_lists_fewer,
        ("torch does not tell of a rank", "it is not in the group"),
    ),
    Rule(
        "busy",
        together.in_own_code,
        ("all ranks are in the hook's code", "the code waits in a collective"),
    ),
    Rule(
        "never_completed",
        together.nothing_pending,
        ("torch does not tell of a rank", "a hook has not returned"),
    ),
    Rule("unknown", together.not_known, ()),
)
"""The first row that fits counts, and the rows below it rely on that."""
