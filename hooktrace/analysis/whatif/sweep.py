"""Step time over bandwidth: one line a hook, where the fastest changes, and where the run is.

hooks by bandwidths --predict--> Sweep --chosen--> lines that are drawn
                                       --crossings--> where another hook becomes the fastest
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .work import Floats

BANDWIDTHS: Floats = np.geomspace(100e6 / 8, 400e9 / 8, 37)
"""100 Mbit/s to 400 Gbit/s, in bytes a second: ten a decade."""
MOST_LINES = 6


@dataclass(frozen=True, slots=True)
class Sweep:
    """Predicted step times of hooks over bandwidths, all else as it is.

    ``step_ms``: (hooks, bandwidths).  ``today``: the run's hook, one of ``hooks``, ``bandwidth``
    its network's, or that of the network which was named, and ``here_ms`` its predicted step on it.
    ``ranks`` and ``latency_ns`` are those of all predictions.
    """

    hooks: tuple[str, ...]
    bandwidths: Floats
    step_ms: Floats
    today: str
    bandwidth: float
    here_ms: float
    ranks: int
    latency_ns: float
    is_named: bool = False


class Crossing(NamedTuple):
    """Where ``slower``, the fastest below this bandwidth, gives way to ``faster``."""

    bandwidth: float
    step_ms: float
    slower: str
    faster: str


def chosen(sweep: Sweep) -> tuple[int, ...]:
    """Return the rows that are drawn: the run's own, what is fastest somewhere, and then the next.

    Those are by their median step time.
    """
    own = sweep.hooks.index(sweep.today)
    best = [row for row in sorted(set(fastest(sweep))) if row != own]
    rest = [
        r for r in np.argsort(np.median(sweep.step_ms, axis=1)).tolist() if r not in (own, *best)
    ]
    return (own, *(best + rest)[: MOST_LINES - 1])


def crossings(sweep: Sweep) -> list[Crossing]:
    """Return where the fastest hook changes, in order of bandwidth; of log-log straight lines."""
    rows = fastest(sweep)
    x, y = np.log(sweep.bandwidths), np.log(sweep.step_ms)
    found = []
    for i in np.flatnonzero(np.diff(rows)).tolist():
        before, after = rows[i], rows[i + 1]
        apart = y[before, i : i + 2] - y[after, i : i + 2]
        share = apart[0] / (apart[0] - apart[1]) if apart[0] != apart[1] else 0.0
        at, level = (float(v[i] + share * (v[i + 1] - v[i])) for v in (x, y[before]))
        names = sweep.hooks[before], sweep.hooks[after]
        found.append(Crossing(float(np.exp(at)), float(np.exp(level)), *names))
    return found


def fastest(sweep: Sweep) -> list[int]:
    """Return the row that is fastest at each bandwidth; of equals the run's own, or the one before.

    What is faster by less than 1 % is no other line to the eye.
    """
    own = sweep.hooks.index(sweep.today)
    rows, last = [], own
    for column in sweep.step_ms.T:
        least = int(np.argmin(column))
        close = [row for row in (own, last, least) if column[row] <= 1.01 * column[least]]
        last = close[0]
        rows.append(last)
    return rows
