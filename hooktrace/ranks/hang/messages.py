"""What the hub asks and tells of hangs, as it travels over the channel.

Suspicion --report--> hub     StatusQuestion, StacksQuestion --ask--> answers
                              HangNotice --tell--> all ranks --> HangRecord
"""

from __future__ import annotations

import msgspec

from ...records import HangRecord
from ...records.hang import RankStacks
from ..channel.messages import Member
from .status import Placed

MOST_CHARACTERS = 16_384
"""Of one rank's stacks."""

SUSPICION, STATUS, STACKS, NOTICE = ("hang.suspicion", "hang.status", "hang.stacks", "hang.notice")
"""Names of the report, the questions and the notice."""


_EXCUSED_TIMES = 10


class HangDiagnosis(Placed, frozen=True, kw_only=True, gc=False):
    """Why ranks wait, and in which call; as long as its ``place`` is the same, so is the hang.

    ``message``: one sentence, and what to do.  ``excused``: the ranks that are waited for are, or
    were a moment ago, paused, compile or save, which may take long.  The rest is as in
    ``HangRecord``; ``age_ns``: how long the call has waited on the rank where that is longest.
    """

    kind: str
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    age_ns: int
    message: str
    excused: bool = False

    def is_due(self, threshold_ns: int) -> bool:
        """Return whether it is to be told; what may take long, only after ten times as long.

        A rank may still suspect an earlier call, when all are asked and are in the next one.
        Where no bucket waits, the rank that suspects knows for how long it has stood there.
        """
        if self.bucket < 0 and not self.excused:
            return True
        return self.age_ns >= threshold_ns * (_EXCUSED_TIMES if self.excused else 1)


class SignalledRank(msgspec.Struct, frozen=True, gc=False):
    """A silent rank, and the rank of its host that asks its process for stacks."""

    member: Member
    helper: int


class StatusQuestion(msgspec.Struct, frozen=True, gc=False):
    """A rank is to tell its status; ``signalled``: whose processes are asked for stacks."""

    signalled: tuple[SignalledRank, ...] = ()


class StacksQuestion(msgspec.Struct, frozen=True, gc=False):
    """Ranks whose threads are wanted, and those who were signalled and wrote theirs down."""

    ranks: tuple[int, ...]
    signalled: tuple[SignalledRank, ...] = ()


class StacksAnswer(msgspec.Struct, frozen=True, gc=False):
    """Of this rank, if it was asked for; ``others``: of silent ones of its host."""

    own: RankStacks | None = None
    others: tuple[tuple[int, str], ...] = ()


class HangNotice(msgspec.Struct, frozen=True, gc=False):
    """A hang that is to be told, or that is over: then after how long at most, and how it ended."""

    hang: int
    diagnosis: HangDiagnosis
    stacks: tuple[RankStacks, ...] = ()
    ended_after_ns: int | None = None

    @property
    def age_ns(self) -> int:
        """How long ago the call began to wait, when this was sent."""
        return self.diagnosis.age_ns if self.ended_after_ns is None else self.ended_after_ns

    def record(self, rank: int, now_ns: int, wall_ns: int) -> HangRecord:
        """Return what a rank records of it; ``now_ns`` by its clock, ``wall_ns`` since 1970."""
        found = self.diagnosis
        return HangRecord(
            kind=found.kind,
            hang=self.hang,
            model=found.model,
            hook=found.hook,
            step=found.step,
            bucket=found.bucket,
            ranks=found.ranks,
            waiting=found.waiting,
            since_ns=now_ns - self.age_ns,
            since_wall_ns=max(0, wall_ns - self.age_ns),
            message=found.message,
            rank=rank,
            stacks=self.stacks,
            ended_after_ns=self.ended_after_ns,
            unit=found.unit,
        )
