"""Stretches of time that one looks up by when they are."""

from __future__ import annotations

import numpy as np

from ..timeline import Ints


class Spans:
    """Stretches of time, ns since the origin, by their ``start``.

    ``row``: of each in the track's columns.
    """

    def __init__(self, row: Ints, start: Ints, end: Ints) -> None:
        order = np.argsort(start, kind="stable")
        self.row, self.start = row[order], start[order]
        self.end: Ints = np.maximum(end, start)[order]
        self._until = np.maximum.accumulate(self.end)

    def inside(self, t0: int, t1: int) -> Ints:
        """Return the places of those that overlap a stretch."""
        low = int(np.searchsorted(self._until, t0))
        high = int(np.searchsorted(self.start, t1, side="right"))
        found: Ints = low + np.flatnonzero(self.end[low:high] >= t0)
        return found
