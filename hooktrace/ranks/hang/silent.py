"""Ranks that do not answer: what the state of their process tells, in one table.

Silent.state --PROCESSES--> the kind, what is told of the rank; a line for the log of the hub's
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...records.hang import hang_kind
from ..channel.messages import Silent, State
from .sentences import each
from .snapshot import Finding, Snapshot


class Process(NamedTuple):
    """What the state of a process tells whose rank does not answer.

    ``kind``: of the hang.  ``said``: of the rank, with its process, the state and what else is
    known; ``of_hub``: of the process, where that is the hub's.
    """

    kind: str
    said: str
    of_hub: str


_DIED = Process("died", "is no more: its {process} is {state}", "is no more")

PROCESSES: dict[State, Process] = {
    "gone": _DIED,
    "zombie": _DIED,
    "stopped": Process(
        "stopped",
        "stands still: its {process} is {state} by a signal",
        "is stopped by a signal",
    ),
    "unreachable": Process(
        "network",
        "cannot be reached, its {process} as little: {state}",
        "cannot be reached{why}",
    ),
    "running": Process(
        "interpreter_held",
        "answers nothing, although its {process} is {state}",
        "runs, and answers nothing",
    ),
    "ended": Process(
        "uneven_inputs",
        "has ended, or has closed its tracer, in order",
        "has ended in order",
    ),
    "unknown": Process(
        "unknown",
        "does not answer{why}, and of which nothing more is known",
        "does not answer{why}",
    ),
}
"""By the state."""


def of_process(kind: str) -> Callable[[Snapshot], Finding | None]:
    """Return what finds the silent ranks whose processes are in a state of that kind."""

    def finds(snapshot: Snapshot) -> Finding | None:
        known = {rank: PROCESSES[one.state] for rank, one in snapshot.silent.items()}
        found = [rank for rank, process in known.items() if process.kind == kind]
        if not found:
            return None
        text = each(found, lambda rank: _filled(known[rank].said, snapshot.silent[rank]))
        return Finding(found, text)

    return finds


def _filled(text: str, silent: Silent) -> str:
    why = f" ({silent.why})" if silent.why else ""
    return text.format(process=silent.process, state=silent.state, why=why)


def hub_is_gone(hub: Silent) -> str:
    """Return what is known of a hub on rank 0 that answers nothing any more, and what to do.

    >>> hub_is_gone(Silent(Member(0, 7, "a", "a#boot"), "stopped")).split("; ")[0]
    'rank 0 is gone: its process (pid 7 on a) is stopped by a signal'
    """
    known = PROCESSES[hub.state]
    is_unknown = known.kind == "unknown"
    fix = "look at what rank 0 wrote last" if is_unknown else hang_kind(known.kind).fix
    return (
        f"rank 0 is gone: its {hub.process} {_filled(known.of_hub, hub)}; DDP does not "
        f"go on without it; {fix}"
    )
