"""Which steps of a model are probed, and which of a step's buckets: the same on all ranks.

Ranks of one DDP model count the same steps (under ``no_sync`` none is counted, and under ``join()``
a rank without data counts the shadows), so the count decides.  From which step on is agreed through
torch's key-value store:

    every rank      at its first step: "I trace it, and want these probes"
    first rank      once it sees all of them: "we meet at step M"; the others ask at each step
    every rank      waits at step M for all others; probes begin after the last one's step
    any rank        where a probe failed: "this round is over, at step S"; the next one begins there

Until M is named nobody waits, so that a job in which only some ranks trace goes on as if none did.
M is far enough ahead for ranks that a hook keeps in step, all of them or neighbours only, to hear
of it in time: as far as the round is old, since a rank asks at least at every doubling of that, and
some steps more.  A hook that does not communicate at all lets a rank run past M: it comes as soon
as it hears of it, and if it has ended by then the others wait for the timeout, once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from torch._C._distributed_c10d import Store

OFF = sys.maxsize
"""No step is ever as late as this."""

NEVER = -1

_AHEAD = 8
"""Steps that ranks may be apart."""

_PATIENT_STEPS = 16
"""After which a rank asks only at every doubling of the steps."""


@dataclass(slots=True)
class Schedule:
    """From step ``first`` on each ``every``-th one, and the first ``burst`` ones too.

    Buckets take turns, one a probed step, or with ``all_buckets`` are all probed on each.
    ``every`` is 0 where none comes after the burst.
    """

    first: int
    every: int
    all_buckets: bool = False
    burst: int = 0

    def next_after(self, step: int) -> int:
        """Return the first probed step that comes after ``step``."""
        if step < self.first:
            return self.first if self.burst or self.every else OFF
        if step + 1 < self.first + self.burst:
            return step + 1
        if not self.every:
            return OFF
        return step + self.every - (step - self.first) % self.every

    def takes(self, step: int, bucket: int, bucket_count: int) -> bool:
        """Return whether a bucket of a probed step is probed.

        ``bucket_count``: of the generation; a bucket beyond it, while it is not complete, is not.
        A step between probed ones may come here after calls that were not recorded.
        """
        turn = self.turn(step)
        if turn is None:
            return False
        return self.all_buckets or (bucket_count > 0 and bucket == turn % bucket_count)

    def turn(self, step: int) -> int | None:
        """Return how many turns were before a probed step; ``None`` of another step."""
        ordinal = step - self.first
        if 0 <= ordinal < self.burst:
            return ordinal
        return None if not self.every or ordinal % self.every else ordinal // self.every


class Agreement:
    """One round of one model's agreement, as one rank sees it.

    ``key``: the same on all ranks for the same model and no other one.  ``rank`` of ``size``.
    ``wish``: what this rank wants, in words that equal the other ranks' if they want the same.
    ``number``: of the round, which began at step ``start`` on all ranks.
    ``meeting``: the step to meet at, ``NEVER`` where the ranks want different things, ``None``
    while it is not known.  ``next_step``: when to ask again.
    """

    def __init__(
        self, store: Store, key: str, rank: int, size: int, wish: str, *, number: int, start: int
    ) -> None:
        self._store = store
        self._left = f"{key}/left"
        self._key = key
        self._number = number
        self._over = f"{key}/{number}/over"
        self._meeting = f"{key}/{number}/meeting"
        self._wishes = [f"{key}/{number}/wish/{place}" for place in range(size)]
        self._rank = rank
        self._start = start
        self.meeting: int | None = None
        self.next_step = start + 1
        store.set(self._wishes[rank], wish)
        # torch's store does not wait for a key that it sets; what it reads comes after it.
        store.check([self._wishes[rank]])

    def ask(self, step: int) -> None:
        """Look into the store once, at step ``next_step`` or later."""
        age = step - self._start
        self.next_step = step + (1 if age < _PATIENT_STEPS else age)
        if self._rank == 0:
            # One that is d steps ahead, and asks rarely, hears of it at most age + 2 d from here.
            rare = age + _AHEAD >= _PATIENT_STEPS
            self._name(step + age + (2 * _AHEAD if rare else _AHEAD))
        if self._store.check([self._meeting]):
            self.meeting = int(self._store.get(self._meeting))

    def missing(self) -> list[int]:
        """Return the ranks that have said nothing of the model, as far as is known."""
        return [r for r, wish in enumerate(self._wishes) if not self._store.check([wish])]

    def difference(self) -> str:
        """Return what this rank wants and another one does not, once all have said it."""
        wishes = [self._store.get(key).decode() for key in self._wishes]
        own = wishes[self._rank]
        other = next((rank for rank, wish in enumerate(wishes) if wish != own), self._rank)
        return f"{own} on this rank and {wishes[other]} on rank {other} of its group"

    def _name(self, meeting: int) -> None:
        if self._store.check(self._wishes):
            same = len({self._store.get(key) for key in self._wishes}) == 1
            self._store.set(self._meeting, str(meeting if same else NEVER))

    def end(self, step: int) -> int:
        """End the round after a failure at ``step``; returns the step that the first rank said."""
        return int(self._store.compare_set(self._over, "", str(step)))

    def end_newest(self, step: int) -> None:
        """End the newest round, at ``step``, where this one is over already."""
        number = self._number
        while self._store.check([f"{self._key}/{number}/over"]):
            number += 1
        self._store.compare_set(f"{self._key}/{number}/over", "", str(step))

    def next_round(self, step: int) -> tuple[int, int]:
        """Return the number and the start of the first round that is not over, after this one."""
        number, start = self._number + 1, self.end(step)
        while self._store.check([f"{self._key}/{number}/over"]):
            start = int(self._store.get(f"{self._key}/{number}/over"))
            number += 1
        return number, start

    def burst(self, wanted: int) -> int:
        """Return the burst of the round: what the first rank to come to it has ``wanted``."""
        return int(self._store.compare_set(f"{self._key}/{self._number}/burst", "", str(wanted)))

    def is_over(self) -> bool:
        """Return whether any rank has ended the round."""
        return self._store.check([self._over])

    def leave(self) -> None:
        """Let the other ranks know that this one probes the model no more.

        Said and not asked, since the store may be what hangs: a set key is not waited for.  That
        the round began where it ended does no harm: who sees its end sees first who has left.
        """
        self._store.set(self._left, str(self._rank))
        self._store.set(self._over, str(self._start))

    def has_left(self) -> int | None:
        """Return the rank that said last that it probes no more, ``None`` if there is none."""
        return int(self._store.get(self._left)) if self._store.check([self._left]) else None
