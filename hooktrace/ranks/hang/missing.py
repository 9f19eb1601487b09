"""The ranks that have not come to a call that the others wait in: what each of them is at.

View.behind --each rank's own reason--> the reason that tells most --> Finding
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...records.units import named_ranks
from .evidence import ThreadStack
from .sentences import at, counted, each, ended_step, have, lag
from .status import EXCUSES, CallInFlight, RankStatus
from .view import Finding, View

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


def of_those_behind(view: View) -> Iterator[Finding]:
    """Yield what the ranks are at that have not come to the call; nothing where all have."""
    if not view.behind:
        return
    reasons = {rank: next(_reasons(view, rank)) for rank in view.behind}
    kind = min((reason.kind for reason in reasons.values()), key=_ORDER.index)
    if kind == "other_model":
        yield from _order(view, reasons)
    chosen = [rank for rank, reason in reasons.items() if reason.kind == kind]
    text = each(chosen, lambda rank: reasons[rank].text)
    if kind == "elsewhere":
        yield Finding("different_collectives", chosen, text)
        return
    others = [rank for rank in reasons if rank not in chosen]
    text += f" ({named_ranks(others)} not there either)" if others else ""
    if view.in_stage("meeting") == [*view.waiting]:
        text += "; probes of hooktrace's own wait there, before the hook is called"
    yield Finding(kind, chosen, text, all(reasons[rank].excused for rank in chosen))


def _reasons(view: View, rank: int) -> Iterator[Reason]:
    """Yield what a rank is at, that which tells most first; the last one is always there."""
    now, before, front = view.behind[rank], view.before(rank), view.front
    late, place, main = lag(now, front), at(now), now.main
    if main is None:
        yield Reason("busy", f"is {place}{late}", now.is_excused)
        return
    was = None if before is None else before.main
    yield from _went_on(view, rank, main, was)
    if main.exception:
        yield Reason("raised", f"raised {main.exception} and is now {place}{late}")
    if "ending" in main.doing:
        yield Reason("uneven_inputs", f"ends its training {place}{late}")
    stands_still = was is not None and (was.where, was.doing) == (main.where, main.doing)
    is_units = any(call.unit for call in now.in_flight)
    if main.collective and stands_still and not is_units:
        yield Reason("elsewhere", f"is in {main.collective}() {place}{late}")
    others = [call for call in now.in_flight if call.model != front.model]
    if others and (others[0].unit or "backward" in main.doing):
        call = others[0]
        text = f"waits in {call.name} of step {call.step} of {call.model}"
        yield Reason("other_model", text)
    if "probe" in main.doing:
        yield Reason("busy", f"is in a probe of hooktrace's own {place}{late}")
    excuse = next((text for doing, text in EXCUSES.items() if doing in main.doing), "")
    said = f" and {excuse} there" if excuse else ""
    said += " and has paused the watchdog" if now.paused else ""
    excused = now.is_excused or (before is not None and before.is_excused)
    yield Reason("busy", f"is {place}{said}{late}", excused)


def _went_on(view: View, rank: int, main: ThreadStack, was: ThreadStack | None) -> Iterator[Reason]:
    """Its step, or backward pass, has ended without the call: a part of it came, no more will."""
    now, front = view.behind[rank], view.front
    model = now.model(front.model)
    if model is None:
        return
    text = f"and went on: it is {at(now)}"
    if model.ended_without(front):
        yield Reason("different_collectives", f"{ended_step(model)} {text}")
    if model.unit:
        return
    in_backward = was is None or any("backward" in one.doing for one in (main, was))
    partial = model.step == front.step and 0 <= model.bucket < front.bucket
    if _UNFINISHED in main.exception or (partial and not now.in_flight and not in_backward):
        had = counted(model.bucket + 1, "bucket")
        yield Reason("missing_bucket", f"has had {had} in step {model.step} {text}")


def _order(view: View, reasons: dict[int, Reason]) -> Iterator[Finding]:
    """Yield whether those who wait here lack the other model's call that the missing wait in."""
    for rank, status in view.behind.items():
        for call in status.in_flight:
            lacking = [r for r, s in view.waiting.items() if _lacks(s, call)]
            if call.model != view.front.model and lacking:
                text = each([rank], lambda r: reasons[r].text)
                text += f", which {named_ranks(lacking)} {have(lacking)} not come to"
                yield Finding("different_order", reasons, text)
    text = each(list(reasons), lambda rank: reasons[rank].text)
    yield Finding("unknown", reasons, f"{text}; why that waits is not known")


def _lacks(status: RankStatus, call: CallInFlight) -> bool:
    position = status.position(call.model)
    return position is None or position < call.position
