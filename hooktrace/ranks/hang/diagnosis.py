"""Why ranks wait, from what all of them said twice: a pure function of two rounds of answers.

    two Statuses --view.py--> View --first rule that can tell--> HangDiagnosis: kind, ranks, message

The rules, in their order; each speaks only where its evidence is there:

1. a silent rank's process: ``died``, ``stopped``, ``network`` (its whole host is silent),
   ``interpreter_held`` (it runs); where nobody is behind, ``uneven_inputs`` (it ended in order), or
   ``unknown`` (silent.py);
2. all ranks have issued the call, and threads wait in callbacks: ``waits_in_callback``;
3. ranks that have not come to the call, by what they are at: ``missing_bucket``, ``raised``,
   ``uneven_inputs``, ``busy``; where all of these wait themselves, ``different_order``
   or ``different_collectives`` (missing.py);
4. nobody is behind: the ranks differ in how many collectives they made (``some_ranks_only``) or in
   which (``different_collectives``); one is still in the hook's own code (``busy``); the
   future of an opaque hook has no collective left (``never_completed``) (together.py);
5. ``unknown``, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ..channel.messages import Silent
from . import idle, missing, together
from .evidence import ThreadStack
from .messages import HangDiagnosis
from .sentences import opening
from .silent import of_silent
from .status import RankStatus
from .view import Finding, Statuses, View, front_of


def diagnose(first: Statuses, last: Statuses, world_size: int) -> HangDiagnosis | None:
    """Return why ranks wait; ``None`` where none does, or what they wait for moves.

    ``first``, ``last``: about a second apart; what moved between them is no hang.
    """
    front = front_of(first, last)
    if front is None:
        return idle.collective_without_all(first, last)
    view = View(front, first, last, world_size)
    if view.moves:
        return None
    return conclude(view, next(found for rule in _RULES for found in rule(view)))


def conclude(view: View, found: Finding) -> HangDiagnosis:
    """Return what a rule's finding comes to."""
    models = {model.model for status in view.everyone.values() for model in status.models}
    age_ns = max([view.front.age_ns, *(view.call(rank).age_ns for rank in view.waiting)])
    waited = msgspec.structs.replace(view.front, age_ns=age_ns)
    said = opening(waited, view.matching, len(models) > 1)
    return found.concluded(view.front, view.waiting, age_ns, said, *view.looks)


def waits_without_hub(own: RankStatus, hub: Silent, world_size: int) -> HangDiagnosis | None:
    """Return why this rank's call waits, as far as it knows alone; ``None`` where none does.

    Or where the hub has no part in the call.  Nobody asks all ranks while the hub is gone, nor
    needs to: DDP does not go on without rank 0.
    """
    here = Statuses.of([own], [hub])
    front = front_of(here, here)
    if front is None:
        return None
    view = View(front, here, here, world_size)
    if hub.rank not in view.silent:
        return None
    return conclude(view, next(of_silent({hub.rank: hub}, certain_only=False)))


def _silent(view: View) -> Iterator[Finding]:
    """Say how the processes of silent ranks are."""
    yield from of_silent(view.silent, certain_only=bool(view.behind))


def _in_callbacks(view: View) -> Iterator[Finding]:
    """Say where callbacks wait: all have issued the call, and nobody is late for what they want."""
    if view.behind or view.silent:
        return
    waiting = {rank: _waiting_callbacks(view, rank) for rank in view.everyone}
    rank = max(waiting, key=lambda rank: len(waiting[rank]))
    one_each = [f"{thread.name} in `{thread.where}`" for thread in waiting[rank]]
    if one_each:
        threads = "a callback waits" if len(one_each) == 1 else f"{len(one_each)} callbacks wait"
        text = (
            f": on rank {rank} {threads} for a collective, {', '.join(one_each)}, on threads that "
            "have to complete collectives"
        )
        yield Finding("waits_in_callback", (), text)


def _waiting_callbacks(view: View, rank: int) -> list[ThreadStack]:
    """Return the threads of native code that stand where something's ``wait`` is called."""
    before = view.before(rank)
    known = {} if before is None else {s.ident: s.where for s in before.callbacks}
    callbacks = view.everyone[rank].callbacks
    return [one for one in callbacks if one.waits and known.get(one.ident) == one.where]


_RULES: tuple[Callable[[View], Iterator[Finding]], ...] = (
    _silent,
    _in_callbacks,
    missing.of_those_behind,
    *together.RULES,
)
