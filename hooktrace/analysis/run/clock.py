"""One rank's clock: its host times in rank 0's, and how far they may be off.

    ClockRecords of a rank's file --RankClock--> ns of rank 0's host clock, with uncertainty
    times of ranks, what clocks may be off by --last_rank--> the rank that all others wait for

Nothing else adds offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...records import CLOCK_DRIFT, ClockRecord, RunInfo
from .columns import UNKNOWN, Bools, Ints

_Numbers = npt.NDArray[Any]


class RankClock:
    """Turns one rank's host times into rank 0's, as far as its measurements say.

    Between two measurements the offset is interpolated; before the first and after the last it is
    taken as constant, and its uncertainty grows with the distance by ``CLOCK_DRIFT``.  A rank
    without measurements is placed by its wall clock, and its uncertainty is unknown: two hosts'
    wall clocks may be any time apart.

    ``reference``: the run of rank 0, ``None`` where its file is missing; a rank without
    measurements then keeps its own wall clock.
    """

    def __init__(
        self, run: RunInfo | None, clocks: Sequence[ClockRecord], reference: RunInfo | None
    ) -> None:
        ordered = sorted(clocks, key=lambda c: c.time_ns)
        self._at = np.array([c.time_ns for c in ordered], dtype=np.int64)
        self._offset = np.array([c.offset_ns for c in ordered], dtype=np.int64)
        self._uncertainty = np.array([c.uncertainty_ns for c in ordered], dtype=np.int64)
        self._run, self._reference = run, reference
        self._is_reference = run is not None and run.rank == 0

    @property
    def is_known(self) -> bool:
        """Whether the clock was measured, or is rank 0's own."""
        return self._is_reference or len(self._at) > 0

    @property
    def is_placed(self) -> bool:
        """Whether anything places the rank beside rank 0, be it wall clocks."""
        return self.is_known or None not in (self._run, self._reference)

    def wall(self, host_ns: Ints) -> Ints | None:
        """Return the times by rank 0's machine's wall clock, ns since the epoch.

        By the rank's own where rank 0's file is missing; ``None`` where nothing tells.
        """
        if self._reference is None:
            return None if self._run is None else host_ns + self._run.wall_ns(0)
        return self.common(host_ns) + self._reference.wall_ns(0) if self.is_placed else None

    def common(self, host_ns: Ints) -> Ints:
        """Return the times in rank 0's host clock, ns."""
        if self._is_reference:
            return host_ns
        if not len(self._at):
            if self._run is None or self._reference is None:
                return host_ns
            return host_ns + (self._run.wall_ns(0) - self._reference.wall_ns(0))
        # Offsets may be larger than a double holds to the ns: interpolate what differs.
        base = int(self._offset[0])
        moved = np.interp(
            (host_ns - self._at[0]).astype(np.float64),
            (self._at - self._at[0]).astype(np.float64),
            (self._offset - base).astype(np.float64),
        )
        found: Ints = host_ns + base + np.rint(moved).astype(np.int64)
        return found

    def at(self, host_ns: int) -> int:
        """Return one time in rank 0's host clock, ns."""
        return int(self.common(np.array([host_ns]))[0])

    def uncertainty(self, host_ns: Ints) -> Ints:
        """Return by how much ``common`` may be off, ns; ``UNKNOWN`` where nobody measured."""
        if self._is_reference:
            return np.zeros_like(host_ns)
        if not len(self._at):
            return np.full_like(host_ns, UNKNOWN)
        after = np.clip(np.searchsorted(self._at, host_ns), 0, len(self._at) - 1)
        before = np.clip(after - 1, 0, None)
        outside = np.maximum(self._at[0] - host_ns, 0) + np.maximum(host_ns - self._at[-1], 0)
        between = np.maximum(self._uncertainty[before], self._uncertainty[after])
        ends = np.where(host_ns < self._at[0], self._uncertainty[0], self._uncertainty[-1])
        grown = np.rint(outside * CLOCK_DRIFT).astype(np.int64)
        return np.where(outside == 0, between, ends + grown)


def last_rank(
    ready: _Numbers, uncertainty: _Numbers, known: Bools
) -> tuple[Ints, _Numbers, _Numbers]:
    """Return the row of the last rank, its margin to the next, and what clocks may be off by, ns.

    All inputs have a row a rank and any shape beyond; ``known`` says where both times and clocks
    are.  The row is ``UNKNOWN`` where the clocks do not tell the two apart, or one is missing.
    """
    if len(ready) < 2:
        nothing = np.zeros(ready.shape[1:], np.int64)
        return nothing + UNKNOWN, nothing, nothing
    last = ready.argmax(axis=0)[None]
    lowest = np.iinfo(np.int64).min // 2
    others, latest = ready.copy(), ready + uncertainty
    np.put_along_axis(others, last, lowest, axis=0)
    np.put_along_axis(latest, last, lowest, axis=0)

    def of(values: _Numbers, rank: Ints) -> _Numbers:
        found: _Numbers = np.take_along_axis(values, rank, axis=0)[0]
        return found

    following = others.argmax(axis=0)[None]
    told = known.all(axis=0) & (of(ready, last) - of(uncertainty, last) > latest.max(axis=0))
    margin = of(ready, last) - of(ready, following)
    unsure = of(uncertainty, last) + of(uncertainty, following)
    return np.where(told, last[0], UNKNOWN), margin, unsure
