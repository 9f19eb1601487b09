"""Which steps of a model are probed, and which of a step's buckets: the same on all ranks.

Ranks of one DDP model count the same steps (under ``no_sync`` none is counted, and under ``join()``
a rank without data counts the shadows), so the count decides.  From which step on is agreed through
torch's key-value store:

    every rank      at its first step: "I trace it, probing every N-th step"
    first rank      once it sees all of them: "we meet at step M"; the others ask at each step
    every rank      waits at step M for all others; probes begin after the last one's step

Until M is named nobody waits, so that a job in which only some ranks trace goes on as if none did.
M is far enough ahead for ranks that a hook keeps in step, all of them or neighbours only, to hear
of it in time.  A hook that does not communicate at all lets a rank run past M: it comes as soon as
it hears of it, and if it has ended by then the others wait for the timeout, once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from torch._C._distributed_c10d import Store

OFF = sys.maxsize
"""No step is ever as late as this."""

NEVER = -1

_AHEAD = 8
_PATIENT_STEPS = 64
"""After which a rank asks only at every doubling of the steps."""


@dataclass(slots=True)
class Schedule:
    """From step ``first`` on each ``every``-th one.

    Buckets take turns, one a probed step, or with ``all_buckets`` are all probed on each.
    """

    first: int
    every: int
    all_buckets: bool = False

    def next_after(self, step: int) -> int:
        """Return the first probed step that comes after ``step``."""
        if step < self.first:
            return self.first
        return step + self.every - (step - self.first) % self.every

    def takes(self, step: int, bucket: int, bucket_count: int) -> bool:
        """Return whether a bucket of a probed step is probed.

        ``bucket_count``: of the generation; a bucket beyond it, while it is not complete, is not.
        """
        if self.all_buckets:
            return True
        turn = (step - self.first) // self.every
        return bucket_count > 0 and bucket == turn % bucket_count


class Agreement:
    """One model's agreement, as one rank sees it.

    ``key``: the same on all ranks for the same model and no other one.  ``rank`` of ``size``.
    ``every``: probe each ``every``-th step.  ``meeting``: the step to meet at, ``NEVER`` where the
    ranks want different things, ``None`` while it is not known.  ``next_step``: when to ask again.
    """

    def __init__(self, store: Store, key: str, rank: int, size: int, every: int) -> None:
        self._store = store
        self._key = key
        self._rank = rank
        self._size = size
        self.meeting: int | None = None
        self.next_step = 1
        store.set(f"{key}/every/{rank}", str(every))
        # torch's store does not wait for a key that it sets; what it reads comes after it.
        store.check([f"{key}/every/{rank}"])

    def ask(self, step: int) -> None:
        """Look into the store once, at step ``next_step`` or later."""
        self.next_step = step + 1 if step < _PATIENT_STEPS else 2 * step
        if self._rank == 0:
            self._name(step)
        if self._store.check([f"{self._key}/meeting"]):
            self.meeting = int(self._store.get(f"{self._key}/meeting"))

    def missing(self) -> list[int]:
        """Return the ranks that do not trace the model, as far as is known."""
        return [r for r in range(self._size) if not self._store.check([f"{self._key}/every/{r}"])]

    def _name(self, step: int) -> None:
        keys = [f"{self._key}/every/{rank}" for rank in range(self._size)]
        if not self._store.check(keys):
            return
        wishes = {int(self._store.get(key)) for key in keys}
        meeting = 2 * step + _AHEAD if len(wishes) == 1 else NEVER
        self._store.set(f"{self._key}/meeting", str(meeting))

    def withdraw(self) -> None:
        """Let the other ranks know that this one probes the model no more."""
        self._store.set(f"{self._key}/stopped", "1")

    def is_off(self) -> bool:
        """Return whether any rank has withdrawn."""
        return self._store.check([f"{self._key}/stopped"])
