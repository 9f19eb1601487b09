"""Looks now and then whether a call of a hook waits for longer than it ever should.

    calls in flight of one tracer's models --look, each second--> Suspicion: begun, changed, over
    usual durations, asked for only once a call is ten seconds old ----+

Pure, given the clock: it starts nothing and sends nothing.  A suspicion is a question, not an
alarm: what all ranks say decides.  A rank that is slow and waits for nobody suspects nothing; the
others, which wait for it, do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from ...staging.calls import BucketCall
from ...staging.slots import ModelState
from .collectives import PendingCollective
from .look import oldest_call
from .snapshot import standing
from .status import Placed, RankStatus

if TYPE_CHECKING:
    from ...tracing.hangs import TracerHangs

LEAST_NS = 10_000_000_000
"""A call that is not older is never suspected, unless the user has set another limit."""

_TIMES_USUAL = 20
"""So many times the 99th percentile of a model's bucket durations is too long."""

_MOST_CHARACTERS = 200
"""Of what a call raised."""

_AGAIN_NS = 5_000_000_000
"""After which a suspicion is said again: the hub may not have been reached."""


class Suspicion(Placed, frozen=True, kw_only=True, gc=False):
    """A call waits too long; ``over``: it no longer does, and ``error`` is what it ended with.

    ``age_ns``: of the call; ``threshold_ns``: what it passed.  In a collective outside of hooks it
    has no model, and bucket -1.
    """

    age_ns: int
    threshold_ns: int
    over: bool = False
    error: str = ""


class Pauses:
    """Whether somebody has said that it may take long now; may be nested, in several threads."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.Lock()

    @property
    def active(self) -> bool:
        """Whether one is open."""
        return self._count > 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Be paused until the end of the ``with`` block."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1


class Watchdog:
    """Watches one tracer's models.

    ``hang_after_s``: seconds after which a call is suspected; by default ten, or 20 times the 99th
    percentile of its model's buckets where that is longer.  ``portrait``: returns this rank's
    status, for the case that no call is in flight.
    """

    def __init__(
        self,
        watched: TracerHangs,
        portrait: Callable[[], RankStatus],
        hang_after_s: float | None = None,
    ) -> None:
        self._watched = watched
        self._portrait = portrait
        self._fixed_ns = None if hang_after_s is None else int(hang_after_s * 1e9)
        self._said: Suspicion | None = None
        self._said_ns = 0
        self._call: BucketCall | None = None
        """The one that was suspected last: it has what it raised."""
        self._usual: tuple[str, int, int] = ("", -1, 0)
        self._before: RankStatus | None = None
        self._stands: tuple[PendingCollective, int] | None = None

    @property
    def suspicion(self) -> Suspicion | None:
        """What waits too long, as far as the last look told."""
        return self._said

    def look(self) -> Suspicion | None:
        """Return what is new: a suspicion, the same one after some seconds, or that it is over."""
        now, oldest = self._watched.clock(), oldest_call(self._watched.model_states())
        found, said = self._suspicion(now, oldest), self._said
        if said is not None and (found is None or found.place != said.place):
            return self._over(said)  # of another one the next look tells
        if found is None or (said is not None and now - self._said_ns < _AGAIN_NS):
            return None
        self._said, self._said_ns, self._call = found, now, oldest
        return found

    def close(self) -> Suspicion | None:
        """Return that a suspicion is over, if there is one: nobody will know any more."""
        said, call = self._said, self._call
        if said is None:
            return None
        over = self._over(said)
        if over.error or (call is not None and not call.in_flight):
            return over
        return msgspec.structs.replace(over, error="the tracer was closed")

    def _suspicion(self, now: int, oldest: BucketCall | None) -> Suspicion | None:
        if oldest is None:
            return self._standing(now)
        self._before, self._stands = None, None
        slot, step = oldest.slot, oldest.step
        age = now - oldest.ready
        if age <= self._least_ns:
            return None
        limit = self._limit_ns(slot.model.name, step)
        if age <= limit:
            return None
        return Suspicion(
            model=slot.model.name,
            hook=slot.model.hook,
            step=step,
            bucket=slot.index,
            unit="" if slot.unit is None else str(slot.unit),
            order=oldest.order,
            age_ns=age,
            threshold_ns=limit,
        )

    @property
    def _least_ns(self) -> int:
        return LEAST_NS if self._fixed_ns is None else self._fixed_ns

    def _limit_ns(self, model: str, step: int) -> int:
        """Return how long a call may take; what is usual is asked for once a step."""
        if self._fixed_ns is not None:
            return self._fixed_ns
        if self._usual[:2] != (model, step):
            usual = self._watched.usual_ns(model) or 0
            self._usual = model, step, max(LEAST_NS, _TIMES_USUAL * usual)
        return self._usual[2]

    def _standing(self, now: int) -> Suspicion | None:
        """Suspect a collective of torch's own that the training thread stands in.

        It is looked at only where no hook was called for as long as would be suspected.
        """
        newest = max((_last_ready(model) for model in self._watched.model_states()), default=0)
        if not newest or now - newest <= self._least_ns:
            self._before, self._stands = None, None
            return None
        status = self._portrait()
        stands = standing(self._before, status)
        self._before = status
        if stands is None:
            self._stands = None
            return None
        if self._stands is None or self._stands[0] != stands:
            self._stands = stands, now
        age = now - self._stands[1]
        if age <= self._least_ns:
            return None
        return Suspicion(
            model="", hook="", step=-1, bucket=-1, age_ns=age, threshold_ns=self._least_ns
        )

    def _over(self, said: Suspicion) -> Suspicion:
        call, self._said, self._call = self._call, None, None
        return msgspec.structs.replace(
            said,
            over=True,
            error="" if call is None else (call.error or "")[:_MOST_CHARACTERS],
        )


def _last_ready(model: ModelState) -> int:
    calls = [slot.last_call for slot in list(model.slots.values())]
    return max((getattr(call, "ready", 0) for call in calls), default=0)
