"""What is said of hangs: ranks that waited for others which did not come, or came much later.

Hangs of a model --hang_facts--> HangFacts --ranks_hung--> Finding of each
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ...records import RunInfo
from ...records.hang import hang_kind
from ...records.units import named_ranks
from ..timeline import Hang
from .facts import HangFacts, ModelFacts
from .finding import Finding


def hang_facts(hangs: Sequence[Hang], models: Collection[str]) -> tuple[HangFacts, ...]:
    """Return what is known of the hangs of some models, those without an end first."""
    return tuple(
        HangFacts(
            kind=one.record.kind,
            step=one.record.step,
            bucket=one.record.bucket,
            ranks=one.record.ranks,
            waiting=one.record.waiting,
            since_wall_ns=one.record.since_wall_ns,
            sentence=one.sentence,
            ended_after_ns=one.took_ns,
            went_on=one.went_on,
            outcome=one.outcome,
            recorded_by=one.ranks,
            unit=one.record.unit,
        )
        for one in hangs
        if one.record.model in models
    )


def ranks_hung(model: ModelFacts, run: RunInfo | None) -> Iterator[Finding]:
    """Gain: none.  It happened once: without it no other step would have been any shorter.

    Its step is in no statistics, so that neither a stall nor a slow step tells of it once more.
    """
    yield from hang_findings(model.hangs)


def hang_findings(hangs: Sequence[HangFacts]) -> Iterator[Finding]:
    """Yield a finding for each hang."""
    for one in hangs:
        kind = hang_kind(one.kind)
        yield Finding(
            rule=ranks_hung.__name__,
            sentence=_closed(one.sentence, begins_with_name=bool(one.unit)),
            bucket=one.bucket if one.bucket >= 0 else None,
            rank=one.ranks[0] if len(one.ranks) == 1 else None,
            steps=(one.step,),
            evidence=tuple(_evidence(one)),
            remedy=_closed(kind.remedy_of(one.unit)),
            is_wrong=not one.went_on,
            is_kept=True,
            severity="warn" if one.went_on else "fail",
        )


def _evidence(one: HangFacts) -> Iterator[str]:
    yield _lowered(hang_kind(one.kind).sentence)
    yield one.outcome
    files = "file" if len(one.recorded_by) == 1 else "files"
    yield f"recorded in the {files} of {named_ranks(one.recorded_by)}; hooktrace hang says more"


def _closed(text: str, *, begins_with_name: bool = False) -> str:
    """Return a sentence with its first letter, which a module's name keeps, and its end."""
    first = text[:1] if begins_with_name else text[:1].upper()
    return text and first + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
