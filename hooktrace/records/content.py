"""What was read from record files: one file's content, and the parts of a run put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .anomalies import AnomalyRecord
from .base import Record
from .bucket import AssignmentRecord, BucketRecord
from .hang import HangRecord
from .other import OtherCollectives
from .run import ClockRecord, RunInfo
from .skew import SkewRecord
from .step import StepRecord

MOST_NAMED = 100
"""Skipped lines that are named; the rest is counted."""


class SkippedLine(NamedTuple):
    """A line that was not read: its number, from 1, and why; 0: what is left of a file."""

    line: int
    reason: str


@dataclass(slots=True)
class RankRecords:
    """What the record files of one rank hold, in the files' order.

    ``run`` is ``None`` when even the first line is gone.  ``closed`` says that the writer ended
    in order; a killed one leaves false.  ``skipped`` names at most ``MOST_NAMED`` lines that could
    not be read, ``unnamed`` counts the others.

    Of what is not there, the file's last word, by kind: ``lost`` counts the records that could not
    be written, ``left_out`` those that the writer's retention did not keep (``slow_steps``: slow
    ones beyond the share that is kept), ``removed`` those that went with the oldest parts.

    A step is whole when as many of ``buckets`` have its model and step as its ``bucket_count``
    says.  One whose ``detail_kept`` is false was written without its buckets on purpose.
    """

    run: RunInfo | None = None
    steps: list[StepRecord] = field(default_factory=list)
    buckets: list[BucketRecord] = field(default_factory=list)
    assignments: list[AssignmentRecord] = field(default_factory=list)
    anomalies: list[AnomalyRecord] = field(default_factory=list)
    clocks: list[ClockRecord] = field(default_factory=list)
    skews: list[SkewRecord] = field(default_factory=list)
    hangs: list[HangRecord] = field(default_factory=list)
    others: list[OtherCollectives] = field(default_factory=list)
    skipped: list[SkippedLine] = field(default_factory=list)
    unnamed: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    closed: bool = False

    def skip(self, line: int, reason: str) -> None:
        """Name a line that was not read, or count it where many were named."""
        if len(self.skipped) < MOST_NAMED:
            self.skipped.append(SkippedLine(line, reason))
        else:
            self.unnamed += 1


ListedRecord = (
    AssignmentRecord | AnomalyRecord | ClockRecord | SkewRecord | HangRecord | OtherCollectives
)
"""Kinds of records that files hold beside runs, steps and buckets."""

LISTS: dict[type[Record], str] = {
    AssignmentRecord: "assignments",
    AnomalyRecord: "anomalies",
    ClockRecord: "clocks",
    SkewRecord: "skews",
    HangRecord: "hangs",
    OtherCollectives: "others",
}
"""The list of ``RankRecords`` that takes each of them."""

_REPEATED = {"assignments", "clocks"}
"""What a part of a run repeats, so that it can be read alone."""


def joined(parts: Sequence[RankRecords], names: Sequence[str]) -> RankRecords:
    """Return what the parts of one run hold; of several the skipped lines are named with ``names``.

    A part repeats the assignments and the clock before it, so that it can be read alone: they are
    taken once.  Counts stand for the whole run so far, so the larger one holds.
    """
    whole = RankRecords(closed=bool(parts) and parts[-1].closed)
    for part, name in zip(parts, names, strict=True):
        whole.run = whole.run or part.run
        for kind in ("steps", "buckets", *LISTS.values()):
            known, more = getattr(whole, kind), getattr(part, kind)
            if kind in _REPEATED:
                before = set(known)
                more = [one for one in more if one not in before]
            known.extend(more)
        for kind in ("lost", "left_out", "removed"):
            for what, count in getattr(part, kind).items():
                counts = getattr(whole, kind)
                counts[what] = max(count, counts.get(what, 0))
        for line, reason in part.skipped:
            whole.skip(line, f"{name}: {reason}" if len(parts) > 1 else reason)
        whole.unnamed += part.unnamed
    return whole
