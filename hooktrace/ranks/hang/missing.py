"""The ranks that have not come to a call that the others wait in: what each of them is at.

View.behind --each rank's own reason--> the reason that tells most --> HangDiagnosis
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...records.units import named_ranks
from .conclude import HangDiagnosis, conclude
from .evidence import ThreadStack
from .sentences import at, each, ended_step, lag
from .status import EXCUSES, ModelStatus, RankStatus
from .view import View

_UNFINISHED = "Expected to have finished reduction in the prior iteration"
"""How torch's DDP says, in the forward pass, that a bucket never came."""

_ORDER = (
    *("missing_bucket", "different_collectives", "raised", "uneven_inputs", "busy"),
    *("elsewhere", "other_model"),
)
"""Reasons, the one that tells most first: who waits itself is not what others wait for in the end.
"""


class Reason(NamedTuple):
    """Why one rank is not there; ``text`` follows "which"."""

    kind: str
    text: str
    excused: bool = False


def of_those_behind(view: View) -> HangDiagnosis | None:
    """Return what the ranks are at that have not come to the call; ``None`` where all have."""
    if not view.behind:
        return None
    reasons = {rank: _reason(view, rank, status) for rank, status in view.behind.items()}
    kind = min((reason.kind for reason in reasons.values()), key=_ORDER.index)
    if kind == "other_model":
        return _order(view, reasons)
    if kind == "elsewhere":
        return _elsewhere(view, reasons)
    chosen = [rank for rank, reason in reasons.items() if reason.kind == kind]
    others = [rank for rank in reasons if rank not in chosen]
    text = each(chosen, lambda rank: reasons[rank].text)
    text += f" ({named_ranks(others)} not there either)" if others else ""
    if all(view.call(rank).stage == "meeting" for rank in view.waiting):
        text += "; probes of hooktrace's own wait there, before the hook is called"
    excused = all(reasons[rank].excused for rank in chosen)
    return conclude(view, kind, chosen, text, excused)


class _Missing(NamedTuple):
    """A rank that is behind: what it said first and now, and how far it is behind, as text."""

    view: View
    before: RankStatus | None
    now: RankStatus
    main: ThreadStack
    lag: str

    @property
    def place(self) -> str:
        """Where its training thread is."""
        return at(self.now)

    @property
    def stands_still(self) -> bool:
        """Whether its training thread was at the same place before."""
        was = None if self.before is None else self.before.main
        return was is not None and ((was.where, was.doing) == (self.main.where, self.main.doing))


def _reason(view: View, rank: int, status: RankStatus) -> Reason:
    main = status.main
    if main is None:
        return Reason("busy", f"is {at(status)}{lag(status, view.front)}", status.is_excused)
    missing = _Missing(view, view.before(rank), status, main, lag(status, view.front))
    return next(reason for rule in _RULES if (reason := rule(missing)) is not None)


def _went_on(one: _Missing) -> Reason | None:
    """Its backward pass has ended without the bucket: a part of it came, and no more will."""
    model = one.now.model(one.view.front.model)
    if model is None:
        return None
    if model.unit:
        return _ended_step(one, model)
    was = None if one.before is None else one.before.main
    in_backward = "backward" in one.main.doing or was is None or "backward" in was.doing
    partial = model.step == one.view.front.step and 0 <= model.bucket < one.view.front.bucket
    if _UNFINISHED in one.main.exception or (partial and not one.now.in_flight and not in_backward):
        had = f"{model.bucket + 1} bucket{'s' if model.bucket else ''}"
        text = f"has had {had} in step {model.step} and went on: it is {one.place}"
        return Reason("missing_bucket", text)
    return None


def _ended_step(one: _Missing, model: ModelStatus) -> Reason | None:
    """Its step of a sharded model has ended, with fewer collectives."""
    front = one.view.front
    if model.ended_step != front.step or model.ended_calls > front.order:
        return None
    return Reason("different_collectives", f"{ended_step(model)} and went on: it is {one.place}")


def _raised(one: _Missing) -> Reason | None:
    if not one.main.exception:
        return None
    return Reason("raised", f"raised {one.main.exception} and is now {one.place}{one.lag}")


def _ends(one: _Missing) -> Reason | None:
    if "ending" not in one.main.doing:
        return None
    return Reason("uneven_inputs", f"ends its training {one.place}{one.lag}")


def _in_collective(one: _Missing) -> Reason | None:
    doing = one.main.doing[-1] if one.main.doing else ""
    if not doing.startswith("in ") or not one.stands_still:
        return None
    if any(call.unit for call in one.now.in_flight):  # it is that unit's
        return None
    return Reason("elsewhere", f"is {doing}() {one.place}{one.lag}")


def _in_other_model(one: _Missing) -> Reason | None:
    others = [call for call in one.now.in_flight if call.model != one.view.front.model]
    if not others or not (others[0].unit or "backward" in one.main.doing):
        return None
    call = others[0]
    text = f"waits in {call.name} of step {call.step} of {call.model}"
    return Reason("other_model", text)


def _busy(one: _Missing) -> Reason:
    if "probe" in one.main.doing:
        return Reason("busy", f"is in a probe of hooktrace's own {one.place}{one.lag}")
    excuse = next((text for doing, text in EXCUSES.items() if doing in one.main.doing), "")
    said = f" and {excuse} there" if excuse else ""
    said += " and has paused the watchdog" if one.now.paused else ""
    was_excused = one.before is not None and one.before.is_excused
    return Reason("busy", f"is {one.place}{said}{one.lag}", one.now.is_excused or was_excused)


_RULES: tuple[Callable[[_Missing], Reason | None], ...] = (
    _went_on,
    _raised,
    _ends,
    _in_collective,
    _in_other_model,
    _busy,
)


def _elsewhere(view: View, reasons: dict[int, Reason]) -> HangDiagnosis:
    """Say that all who are missing wait in a collective of their own."""
    chosen = [rank for rank, reason in reasons.items() if reason.kind == "elsewhere"]
    text = each(chosen, lambda rank: reasons[rank].text)
    return conclude(view, "different_collectives", chosen, text)


def _order(view: View, reasons: dict[int, Reason]) -> HangDiagnosis:
    """Say whether those who wait here lack the other model's call that the missing wait in."""
    for rank, status in view.behind.items():
        for call in status.in_flight:
            lacking = [r for r, s in view.waiting.items() if _lacks(s, call.model, call.position)]
            if call.model != view.front.model and lacking:
                text = each([rank], lambda r: reasons[r].text)
                text += f", which {named_ranks(lacking)} {_have(lacking)} not come to"
                return conclude(view, "different_order", list(reasons), text)
    text = each(list(reasons), lambda rank: reasons[rank].text)
    text += "; why that waits is not known"
    return conclude(view, "unknown", list(reasons), text)


def _have(which: list[int]) -> str:
    return "has" if len(which) == 1 else "have"


def _lacks(status: RankStatus, model: str, position: tuple[int, int]) -> bool:
    found = status.model(model)
    return found is None or found.position < position
