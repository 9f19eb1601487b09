"""How far this rank's clock is from rank 0's: pings to the parent, offsets added up.

    a new parent --> Ping, Pong, Ping, Pong, ... --> the shortest round trip     --> ClockRecord
    at times     --> Ping, Pong --> where it says more than the last still does  --> ClockRecord

With t0 and t3 read here, t0 sent along and back, and t1 and t2 read by the parent, the offset to it
is ((t1 - t0) + (t2 - t3)) / 2 and the round trip (t3 - t0) - (t2 - t1), as in NTP (D. Mills et al.,
RFC 5905, section 8).  Whatever delayed one way and not the other, half of the round trip bounds it;
the shortest of many is the one that nothing else delayed.  The parent says how far it is itself.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ...records import CLOCK_DRIFT, ClockRecord
from ...staging.calls import Clock
from .messages import Pong

PINGS = 16
"""One after another to a new parent."""
_RECORD_EVERY_NS = 10_000_000_000
"""The least between two records."""


class ClockOffset:
    """Measures by the answers to pings of ``clock``; ``report`` gets each measurement."""

    def __init__(self, clock: Clock, report: Callable[[ClockRecord], None]) -> None:
        self.clock = clock
        self._report = report
        self._last: ClockRecord | None = None
        self._recorded_ns = 0
        self._trips: list[ClockRecord] = []
        self._left = 0
        self.is_reference = False
        """Whether this is the clock that others are compared with."""

    def offset_at(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""
        if self.is_reference:
            return 0, 0
        last = self._last
        if last is None:
            return None
        drift = int(abs(host_ns - last.time_ns) * CLOCK_DRIFT)
        return last.offset_ns, last.uncertainty_ns + drift

    def joined(self) -> None:
        """Begin anew: a new parent is to be pinged some times at once."""
        self._trips, self._left = [], PINGS

    def answered(self, pong: Pong, arrived_ns: int) -> bool:
        """Take the answer to a ping; return whether the next one is to go at once."""
        if pong.offset_ns is None:
            return False
        self._trips.append(_trip(pong, arrived_ns))
        self._left -= 1
        if self._left > 0:
            return True
        shortest = min(self._trips, key=lambda trip: (trip.round_trip_ns, trip.offset_ns))
        record, self._trips = replace(shortest, pings=len(self._trips)), []
        known = self.offset_at(record.time_ns)
        if known is None or known[1] > record.uncertainty_ns:
            self._last = record
            if known is None or record.time_ns - self._recorded_ns >= _RECORD_EVERY_NS:
                self._recorded_ns = record.time_ns
                self._report(record)
        return False


def _trip(pong: Pong, arrived_ns: int) -> ClockRecord:
    """Return what one round trip says, to a parent that knows its own offset."""
    t0, t1, t2, t3 = pong.sent_ns, pong.arrived_ns, pong.answered_ns, arrived_ns
    round_trip = (t3 - t0) - (t2 - t1)
    return ClockRecord(
        time_ns=(t0 + t3) // 2,
        offset_ns=(t1 - t0 + t2 - t3) // 2 + (pong.offset_ns or 0),
        uncertainty_ns=-(-round_trip // 2) + pong.uncertainty_ns,
        round_trip_ns=round_trip,
        pings=1,
    )
