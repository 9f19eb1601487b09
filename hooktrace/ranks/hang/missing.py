"""The ranks that have not come to a call that the others wait in: what each of them is at.

View.behind --RULES, the first that tells of a rank--> the one that tells most --> Finding
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from ...records.units import named_ranks
from .evidence import ThreadStack
from .sentences import at, busy, counted, each, ended_step, have, lag
from .status import CallInFlight, RankStatus
from .view import Finding, View


class Late(NamedTuple):
    """A rank that is behind: what it says now, and where its training thread was before."""

    view: View
    now: RankStatus
    was: ThreadStack | None

    @property
    def doing(self) -> tuple[str, ...]:
        """What its training thread does, as far as that is known."""
        return () if self.now.main is None else self.now.main.doing

    @property
    def ends(self) -> bool:
        """Whether it ends its training."""
        return "ending" in self.doing

    @property
    def raised(self) -> str:
        """What it handles now."""
        return "" if self.now.main is None else self.now.main.exception

    @property
    def place(self) -> str:
        """Where it is, and how far behind."""
        return at(self.now) + lag(self.now, self.view.front)


class Rule(NamedTuple):
    """Why a rank is not there; ``said`` follows "which", nothing where the rule does not tell.

    ``waits``: such a rank waits itself, and is not who others wait for in the end.
    """

    kind: str
    said: Callable[[Late], str | Literal[False]]
    waits: bool = False


def _ended_step(late: Late) -> str:
    """Its step of a sharded model has ended without the call: no more will come."""
    front = late.view.front
    model = late.now.model(front.model)
    if model is None or not model.ended_without(front):
        return ""
    return f"{ended_step(model)} and went on: it is {at(late.now)}"


def _left_out(late: Late) -> str:
    """Its backward pass has ended, or DDP says so, with a part of the buckets."""
    now, was, front = late.now, late.was, late.view.front
    model = now.model(front.model)
    if model is None or model.unit or now.main is None:
        return ""
    in_backward = was is None or "backward" in (*late.doing, *was.doing)
    partial = model.step == front.step and 0 <= model.bucket < front.bucket
    if not (now.main.unreduced or (partial and not now.in_flight and not in_backward)):
        return ""
    had = counted(model.bucket + 1, "bucket")
    return f"has had {had} in step {model.step} and went on: it is {at(now)}"


def _in_torchs_collective(late: Late) -> str:
    main, was = late.now.main, late.was
    if main is None or was is None or not main.collective:
        return ""
    moves = (was.where, was.doing, was.collective) != (main.where, main.doing, main.collective)
    if moves or any(call.unit for call in late.now.in_flight):
        return ""
    return f"is in {main.collective}() {late.place}"


def _in_other_model(late: Late) -> str:
    call = next((c for c in late.now.in_flight if c.model != late.view.front.model), None)
    if call is None or not (call.unit or "backward" in late.doing):
        return ""
    return f"waits in {call.name} of step {call.step} of {call.model}"


def _is_busy(late: Late) -> str:
    if "probe" in late.doing:
        return f"is in a probe of hooktrace's own {late.place}"
    return busy(late.now) + lag(late.now, late.view.front)


RULES = (
    Rule("different_collectives", _ended_step),
    Rule("missing_bucket", _left_out),
    Rule("raised", lambda late: late.raised and f"raised {late.raised} and is now {late.place}"),
    Rule("uneven_inputs", lambda late: late.ends and f"ends its training {late.place}"),
    Rule("different_collectives", _in_torchs_collective, waits=True),
    Rule("different_order", _in_other_model, waits=True),
    Rule("busy", _is_busy),
)
"""Of a rank the first one counts that tells anything; the last always does."""


def of_those_behind(view: View) -> Iterator[Finding]:
    """Yield what the ranks are at that have not come to the call; nothing where all have."""
    if not view.behind:
        return
    reasons = {rank: _reason(view, rank) for rank in view.behind}
    chosen_rule = min((rule for rule, _ in reasons.values()), key=_weight)
    said = {rank: text for rank, (_, text) in reasons.items()}
    if chosen_rule.kind == "different_order":
        yield from _order(view, said)
        return
    chosen = [rank for rank, (rule, _) in reasons.items() if rule is chosen_rule]
    text = each(chosen, said.__getitem__)
    others = [rank for rank in reasons if rank not in chosen]
    text += f" ({named_ranks(others)} not there either)" if others else ""
    if view.in_stage("meeting") == [*view.waiting]:
        text += "; probes of hooktrace's own wait there, before the hook is called"
    yield Finding(chosen_rule.kind, chosen, text)


def _reason(view: View, rank: int) -> tuple[Rule, str]:
    before = view.before(rank)
    late = Late(view, view.behind[rank], None if before is None else before.main)
    return next((rule, text) for rule in RULES if (text := rule.said(late)))


def _weight(rule: Rule) -> tuple[bool, int]:
    return rule.waits, RULES.index(rule)


def _order(view: View, said: dict[int, str]) -> Iterator[Finding]:
    """Yield whether those who wait here lack the other model's call that the missing wait in."""
    for rank, status in view.behind.items():
        for call in status.in_flight:
            lacking = [r for r, s in view.waiting.items() if _lacks(s, call)]
            if call.model != view.front.model and lacking:
                text = each([rank], said.__getitem__)
                text += f", which {named_ranks(lacking)} {have(lacking)} not come to"
                yield Finding("different_order", said, text)
    text = each(list(said), said.__getitem__)
    yield Finding("unknown", said, f"{text}; why that waits is not known")


def _lacks(status: RankStatus, call: CallInFlight) -> bool:
    position = status.position(call.model)
    return position is None or position < call.position
