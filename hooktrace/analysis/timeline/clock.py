"""Host times of one rank in rank 0's clock, as far as its measurements say.

Between two measurements the offset is interpolated; before the first and after the last it is taken
as constant, and its uncertainty grows with the distance by ``CLOCK_DRIFT``.  A rank without
measurements is placed by its wall clock, and its uncertainty is unknown: two hosts' wall clocks may
be any time apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...records import CLOCK_DRIFT, ClockRecord, RunInfo
from .columns import UNKNOWN, Ints


class RankClock:
    """Turns one rank's host times into rank 0's.

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
        self._is_reference = run is not None and run.rank == 0
        self._by_wall = 0
        if run is not None and reference is not None and not self._is_reference:
            self._by_wall = (run.wall_anchor_ns - run.host_anchor_ns) - (
                reference.wall_anchor_ns - reference.host_anchor_ns
            )

    @property
    def is_known(self) -> bool:
        """Whether the clock was measured, or is rank 0's own."""
        return self._is_reference or len(self._at) > 0

    def common(self, host_ns: Ints) -> Ints:
        """Return the times in rank 0's host clock, ns."""
        if self._is_reference:
            return host_ns
        if not len(self._at):
            return host_ns + self._by_wall
        # Offsets may be larger than a double holds to the ns: interpolate what differs.
        base = int(self._offset[0])
        moved = np.interp(
            (host_ns - self._at[0]).astype(np.float64),
            (self._at - self._at[0]).astype(np.float64),
            (self._offset - base).astype(np.float64),
        )
        found: Ints = host_ns + base + np.rint(moved).astype(np.int64)
        return found

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
        inside = outside == 0
        found: Ints = np.where(inside, between, ends + np.rint(outside * CLOCK_DRIFT)).astype(
            np.int64
        )
        return found
