"""Looks now and then whether a call of a hook waits for longer than it ever should.

    calls in flight of one tracer's models --look, each second--> Suspicion: begun, changed, over
    usual durations, asked for only once a call is ten seconds old ----+

A suspicion is a question, not an alarm: what all ranks say decides.  A rank that is slow and waits
for nobody suspects nothing; the others, which wait for it, do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...staging.calls import BucketCall
from .look import last_calls, oldest_call, position_of
from .messages import RankStatus, Suspicion
from .snapshot import NOTHING

if TYPE_CHECKING:
    from ...tracing.process_channel import TracerHangs

LEAST_NS = 10_000_000_000
"""A call that is not older is never suspected, unless the user has set another limit."""

_TIMES_USUAL = 20
"""So many times the 99th percentile of a model's bucket durations is too long."""

_AGAIN_NS = 5_000_000_000
"""After which a suspicion is said again: the hub may not have been reached."""


class Watchdog:
    """Watches one tracer's models.  ``portrait``: this rank's status.

    A call is suspected after the tracer's ``hang_after_s``; by default after ten seconds, or 20
    times the 99th percentile of its model's buckets where that is longer.
    """

    def __init__(self, watched: TracerHangs, portrait: Callable[[], RankStatus]) -> None:
        self._watched = watched
        self._portrait = portrait
        limit_s = watched.hang_after_s
        self._least_ns = LEAST_NS if limit_s is None else int(limit_s * 1e9)
        self.suspicion: Suspicion | None = None
        """What waits too long, by the last look."""
        self._said_ns = 0
        self._call: BucketCall | None = None
        """The one that was suspected last: it has what it raised."""
        self._before = NOTHING
        self._stands: tuple[object, int] = None, 0
        """In which collective outside of hooks the training thread stands, and since when."""

    def look(self) -> Suspicion | None:
        """Return what is new: a suspicion, the same one after some seconds, or that it is over."""
        now, oldest = self._watched.clock(), oldest_call(self._watched.model_states())
        found, said = self._suspicion(now, oldest), self.suspicion
        if said is not None and (found is None or found.place != said.place):
            return self._over()  # of another one the next look tells
        if found is None or (said is not None and now - self._said_ns < _AGAIN_NS):
            return None
        self.suspicion, self._said_ns, self._call = found, now, oldest
        return found

    def close(self) -> Suspicion | None:
        """Return that a suspicion is over, if there is one: nobody will know any more."""
        is_waiting = self._call is None or self._call.in_flight
        return self._over("the tracer was closed" if is_waiting else "")

    def _suspicion(self, now: int, oldest: BucketCall | None) -> Suspicion | None:
        if oldest is None:
            return self._standing(now)
        slot, age, limit = oldest.slot, now - oldest.ready, self._least_ns
        place = (slot.model.name, *position_of(oldest))
        if self.suspicion is not None and self.suspicion.place == place:
            return self.suspicion  # it waits still, whatever has become usual meanwhile
        if age > limit and self._watched.hang_after_s is None:
            limit = max(limit, _TIMES_USUAL * (self._watched.usual_ns(slot.model.name) or 0))
        if age <= limit:
            return None
        return Suspicion(place=place, threshold_ns=limit)

    def _standing(self, now: int) -> Suspicion | None:
        """Suspect a collective of torch's own that the training thread stands in.

        It is looked at only where no hook was called for as long as would be suspected.
        """
        models = self._watched.model_states()
        newest = max((call.ready for model in models for call in last_calls(model)), default=0)
        if not newest or now - newest <= self._least_ns:
            self._before, self._stands = NOTHING, (None, now)
            return None
        before, self._before = self._before, self._portrait()
        stands = self._before.stands_in(before)
        if stands != self._stands[0]:
            self._stands = stands, now
        if stands is None or now - self._stands[1] <= self._least_ns:
            return None
        return Suspicion(place=("", -1, -1), threshold_ns=self._least_ns)

    def _over(self, error: str = "") -> Suspicion | None:
        said, call, self.suspicion, self._call = self.suspicion, self._call, None, None
        if call is not None and call.error:
            error = call.error[:200]
        return said and replace(said, over=True, error=error)
