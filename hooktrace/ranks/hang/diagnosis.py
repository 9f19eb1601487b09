"""Why ranks wait, from what all of them said twice: a pure function of two rounds of answers.

    two Statuses --view.py--> View --first rule that can tell--> HangDiagnosis: kind, ranks, message

The rules, in their order; each speaks only where its evidence is there:

1. a silent rank's process: ``died``, ``stopped``, ``network`` (its whole host is silent);
2. all ranks have issued the call, and threads wait in callbacks: ``waits_in_callback``;
3. a silent rank's process runs: ``interpreter_held``;
4. ranks that have not come to the call, by what they are at: ``missing_bucket``, ``raised``,
   ``uneven_inputs``, ``busy``; where all of these wait themselves, ``different_order``
   or ``different_collectives`` (missing.py);
5. nobody is behind: the ranks differ in how many collectives they made (``some_ranks_only``) or in
   which (``different_collectives``); one is still in the hook's own code (``busy``); the
   future of an opaque hook has no collective left (``never_completed``) (together.py);
6. ``unknown``, and why.
"""

from __future__ import annotations

from collections.abc import Callable

from ..channel.silent_rank import SilentRank
from . import idle, missing, together
from .conclude import HangDiagnosis, conclude
from .evidence import ThreadStack
from .sentences import each, process
from .view import Statuses, View, front_of


def diagnose(first: Statuses, last: Statuses, world_size: int) -> HangDiagnosis | None:
    """Return why ranks wait; ``None`` where none does, or what they wait for moves.

    ``first``, ``last``: about a second apart; what moved between them is no hang.
    """
    front = front_of(first, last)
    if front is None:
        return idle.collective_without_all(first, last, world_size)
    view = View(front, first, last, world_size)
    if view.moves:
        return None
    return next(found for rule in _RULES if (found := rule(view)) is not None)


def _died(view: View) -> HangDiagnosis | None:
    return _silent(view, "died", ("gone", "zombie"), "is no more: its {} is {}")


def _stopped(view: View) -> HangDiagnosis | None:
    return _silent(view, "stopped", ("stopped",), "stands still: its {} is {} by a signal")


def _unreachable(view: View) -> HangDiagnosis | None:
    return _silent(view, "network", ("unreachable",), "cannot be reached, its {} as little: {}")


def _interpreter_held(view: View) -> HangDiagnosis | None:
    if any(silent.state == "running" for silent in view.silent.values()):
        return _silent(
            view, "interpreter_held", ("running",), "answers nothing, although its {} is {}"
        )
    return None


def _silent(view: View, kind: str, states: tuple[str, ...], text: str) -> HangDiagnosis | None:
    found = [rank for rank, silent in view.silent.items() if silent.state in states]
    if not found:
        return None
    said = each(
        found, lambda rank: text.format(process(view.silent[rank]), view.silent[rank].state)
    )
    return conclude(view, kind, found, said)


def _in_callbacks(view: View) -> HangDiagnosis | None:
    """Say where callbacks wait: all have issued the call, and nobody is late for what they want."""
    if view.behind or view.silent:
        return None
    waiting = {rank: _waiting_callbacks(view, rank) for rank in view.everyone}
    rank = max(waiting, key=lambda rank: len(waiting[rank]))
    if not waiting[rank]:
        return None
    one_each = [f"{thread.name} in `{thread.where}`" for thread in waiting[rank]]
    threads = "a callback waits" if len(one_each) == 1 else f"{len(one_each)} callbacks wait"
    text = (
        f": on rank {rank} {threads} for a collective, {', '.join(one_each)}, on threads that have "
        "to complete collectives"
    )
    return conclude(view, "waits_in_callback", (), text)


def _waiting_callbacks(view: View, rank: int) -> list[ThreadStack]:
    """Return the threads of native code that stand where something's ``wait`` is called."""
    before = view.before(rank)
    known = {} if before is None else {s.ident: s.where for s in before.callbacks}
    return [
        thread
        for thread in view.everyone[rank].callbacks
        if thread.waits and known.get(thread.ident) == thread.where
    ]


def _ended(view: View) -> HangDiagnosis | None:
    found = [rank for rank, silent in view.silent.items() if silent.state == "ended"]
    if not found or view.behind:
        return None
    said = each(found, lambda _: "has ended, or has closed its tracer, in order")
    return conclude(view, "uneven_inputs", found, said)


def _unheard(view: View) -> HangDiagnosis | None:
    found = list(view.silent)
    if not found or view.behind:
        return None
    said = each(found, lambda rank: _answers_nothing(view.silent[rank]))
    return conclude(view, "unknown", found, said)


def _answers_nothing(silent: SilentRank) -> str:
    why = f" ({silent.why})" if silent.why else ""
    return f"does not answer{why}, and of which nothing more is known"


def of_silent(view: View) -> HangDiagnosis | None:
    """Return what a silent rank's process tells; ``None`` where nothing of any is known."""
    rules = (_died, _stopped, _unreachable, _interpreter_held)
    return next((found for rule in rules if (found := rule(view)) is not None), None)


_RULES: tuple[Callable[[View], HangDiagnosis | None], ...] = (
    _died,
    _stopped,
    _unreachable,
    _in_callbacks,
    _interpreter_held,
    _ended,
    _unheard,
    missing.of_those_behind,
    together.of_all,
)
