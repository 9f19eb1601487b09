"""Who recorded, and how its clock stands to rank 0's."""

from __future__ import annotations

import msgspec

from .base import Count, Ns, Rank, RankCount, Record, WallNs

SCHEMA_VERSION = 7
"""Version of the record fields; a file that holds records says which one it was written with."""


CLOCK_DRIFT = 50e-6
"""Parts by which two hosts' clocks may drift apart, which is more than they do under NTP."""


class RunInfo(Record, frozen=True, kw_only=True, tag="run"):
    """Who recorded: this process in its job, and its clock's anchor to wall-clock time.

    ``wall_anchor_ns`` (``time.time_ns``) and ``host_anchor_ns`` (``time.perf_counter_ns``) were
    read at the same moment, once per process.  ``cores``: on which the process may run;
    ``threads``: of torch for one operation; ``None`` where it is not known, as in older files.
    ``schema``: the version of the records that follow in a file, which always says it.
    """

    run_id: str
    rank: Rank
    local_rank: Rank
    world_size: RankCount
    host: str
    pid: Count
    torch_version: str
    backend: str
    host_anchor_ns: Ns
    wall_anchor_ns: WallNs
    cores: Count | None = None
    threads: Count | None = None
    schema: Count = msgspec.field(default_factory=lambda: SCHEMA_VERSION)

    def wall_ns(self, host_ns: int) -> int:
        """Turn a record's host time into ns since the Unix epoch."""
        return self.wall_anchor_ns + (host_ns - self.host_anchor_ns)


class ClockRecord(Record, frozen=True, kw_only=True, tag="clock"):
    """One measurement of this rank's host clock against rank 0's.

    When this rank's clock showed ``time_ns``, rank 0's showed ``time_ns + offset_ns``, give or take
    ``uncertainty_ns``: half of the shortest of ``pings`` round trips, ``round_trip_ns``.  Away from
    that moment the uncertainty grows by ``CLOCK_DRIFT`` of the distance.
    """

    time_ns: Ns
    offset_ns: Ns
    uncertainty_ns: Ns
    round_trip_ns: Ns
    pings: Count
