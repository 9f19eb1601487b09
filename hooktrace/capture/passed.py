"""Calls of a hook whose tracer is paused: they are counted, and their steps follow at the end.

    paused call --calls += 1--> PassedCalls --position--> step and bucket of the last of them

Ranks that pause some calls apart must agree on numbers afterwards, so each call counts.  To tell
which bucket it is takes microseconds; but from its third step on a model has the same buckets in
every step, in ascending order, those of shadows under ``join()`` too.  Calls are told apart
where the hook serves several models.  One that it serves first while paused is not told from the
other: its calls count too, on all ranks alike.
"""

from __future__ import annotations


class PassedCalls:
    """``calls`` after bucket ``bucket`` of step ``step``, of a model of ``buckets`` buckets.

    ``calls`` is written by the thread that calls the hook only, and all else stays as it is, so
    that any thread may ask for the position meanwhile.
    """

    __slots__ = ("_buckets", "_first", "_step", "calls")

    def __init__(self, step: int, bucket: int, buckets: int) -> None:
        self._step = step
        self._first = bucket
        self._buckets = buckets
        self.calls = 0

    @property
    def position(self) -> tuple[int, int]:
        """The step and the bucket of the last call."""
        steps, bucket = divmod(self._first + self.calls, self._buckets)
        return self._step + steps, bucket
