"""What a diagnosis comes to: the kind of a hang, who waits for whom, and the sentence.

A rule's text --conclude--> HangDiagnosis --hub.py--> HangRecord
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ...records.hang import hang_kind
from .sentences import opening
from .view import View

_EXCUSED_TIMES = 10


class HangDiagnosis(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why ranks wait.

    ``message``: one sentence, and what to do.  ``excused``: the ranks that are waited for are, or
    were a moment ago, paused, compile or save, which may take long.  The rest is as in
    ``HangRecord``; ``age_ns``: how long the call has waited on the rank where that is longest.
    """

    kind: str
    model: str
    hook: str
    step: int
    bucket: int
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    age_ns: int
    message: str
    excused: bool = False
    unit: str = ""
    order: int = -1
    """Of a sharded model, as ``CallInFlight`` has them."""

    def is_due(self, threshold_ns: int) -> bool:
        """Return whether it is to be told; what may take long, only after ten times as long.

        A rank may still suspect an earlier call, when all are asked and are in the next one.
        Where no bucket waits, the rank that suspects knows for how long it has stood there.
        """
        if self.bucket < 0 and not self.excused:
            return True
        return self.age_ns >= threshold_ns * (_EXCUSED_TIMES if self.excused else 1)

    @property
    def what(self) -> tuple[str, int, int]:
        """The call: a hang is the same one as long as this is."""
        return self.model, self.step, self.order if self.unit else self.bucket


def conclude(
    view: View, kind: str, missing: Iterable[int], text: str, excused: bool = False
) -> HangDiagnosis:
    """Return why a view's front waits; ``text`` goes on where "has waited on ranks" ends."""
    front = view.front
    models = {model.model for status in view.everyone.values() for model in status.models}
    ages = [view.call(rank).age_ns for rank in view.waiting]
    waited = msgspec.structs.replace(front, age_ns=max([front.age_ns, *ages]))
    there = [rank for rank in view.waiting if rank not in view.mismatched]
    sentence = opening(waited, there, len(models) > 1) + text
    remedy = hang_kind(kind).remedy_of(front.unit)
    return HangDiagnosis(
        kind=kind,
        model=front.model,
        hook=front.hook,
        step=front.step,
        bucket=front.bucket,
        ranks=tuple(sorted(missing)),
        waiting=tuple(sorted(view.waiting)),
        age_ns=waited.age_ns,
        message=f"{sentence}; {remedy}",
        excused=excused,
        unit=front.unit,
        order=front.order,
    )
