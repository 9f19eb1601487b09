"""Stretches of time, and the rows of a rank's lane: buckets under way at once do not overlap."""

from __future__ import annotations

import numpy as np

from ..timeline import Ints

MAX_ROWS = 12
"""Rows of buckets in a rank's lane, at most."""


def rows_of(step: Ints, bucket: Ints, start: Ints, end: Ints) -> Ints:
    """Return the row in a rank's lane, below ``MAX_ROWS``, of each bucket.

    Few buckets: a row for each index, so that a step is a staircase and a bucket is always at the
    same height.  Many: each takes the first row that is free, and the rows begin anew with each
    step.  Where more than ``MAX_ROWS`` are under way at once, some share a row.
    """
    if not len(step):
        return np.zeros(0, np.int64)
    return bucket.copy() if bucket.max() < MAX_ROWS else free_rows(step, start, end)


def free_rows(step: Ints, start: Ints, end: Ints) -> Ints:
    """Return for each bar the first row, below ``MAX_ROWS``, that is free in its step."""
    if not len(step):
        return np.zeros(0, np.int64)
    order = np.lexsort((start, step))
    sorted_step = step[order]
    firsts = np.flatnonzero(np.concatenate(([True], sorted_step[1:] != sorted_step[:-1])))
    sizes = np.diff(np.append(firsts, len(order)))
    busy_to = np.full((len(firsts), MAX_ROWS), np.iinfo(np.int64).min)
    rows: Ints = np.zeros(len(order), np.int64)
    # The k-th bucket of all steps at once: as many turns as a step has buckets.
    for k in range(int(sizes.max())):
        steps = np.flatnonzero(sizes > k)
        at = order[firsts[steps] + k]
        free = busy_to[steps] <= start[at, None]
        chosen = free.argmax(axis=1)
        full = np.flatnonzero(~free.any(axis=1))
        chosen[full] = busy_to[steps[full]].argmin(axis=1)
        busy_to[steps, chosen] = np.maximum(busy_to[steps, chosen], end[at])
        rows[at] = chosen
    return rows


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
