"""What the hub asks and tells of hangs, as it travels over the channel.

Suspicion --report--> hub     STATUS, STACKS --ask--> RankStatus, RankStacks
                              Hang --tell--> all ranks --> HangRecord
"""

from __future__ import annotations

import msgspec

from ...records import HangRecord
from ...records.hang import RankStacks
from .status import Placed

MOST_CHARACTERS = 16_384
"""Of one rank's stacks."""

SUSPICION, STATUS, STACKS, NOTICE = ("hang.suspicion", "hang.status", "hang.stacks", "hang.notice")
"""Names of the report, the questions and the notice.

``STACKS`` is asked with the ranks whose stacks are wanted; the others answer ``None``.
"""


_EXCUSED_TIMES = 10


class Hang(Placed, frozen=True, kw_only=True, gc=False):
    """Why ranks wait, and in which call; as long as its ``place`` is the same, so is the hang.

    ``message``: one sentence, and what to do.  ``excused``: the ranks that are waited for are, or
    were a moment ago, paused, compile or save, which may take long.  ``age_ns``: how long the call
    has waited on the rank where that is longest, when this was sent.  The rest is as in
    ``HangRecord``.
    """

    kind: str
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    age_ns: int
    message: str
    excused: bool = False
    hang: int = 0
    stacks: tuple[RankStacks, ...] = ()
    ended_after_ns: int | None = None
    failed: bool = False

    def is_due(self, threshold_ns: int) -> bool:
        """Return whether it is to be told; what may take long, only after ten times as long.

        A rank may still suspect an earlier call, when all are asked and are in the next one.
        Where no bucket waits, the rank that suspects knows for how long it has stood there.
        """
        if self.bucket < 0 and not self.excused:
            return True
        return self.age_ns >= threshold_ns * (_EXCUSED_TIMES if self.excused else 1)

    def record(self, rank: int, now_ns: int, wall_ns: int) -> HangRecord:
        """Return what a rank records of it; ``now_ns`` by its clock, ``wall_ns`` since 1970."""
        known = msgspec.structs.asdict(self)
        for own in ("order", "age_ns", "excused"):
            del known[own]
        since_wall_ns = max(0, wall_ns - self.age_ns)
        return HangRecord(
            **known, rank=rank, since_ns=now_ns - self.age_ns, since_wall_ns=since_wall_ns
        )
