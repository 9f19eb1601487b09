"""Which ranks are last more often than by chance: the one rule of the report and the tab.

    who was last at each key --often_last--> OftenLast(rank, bucket, times, of), the worst first

One rank is always last, and where ranks take turns each is in its share of the steps.  So a rank is
named only from ``OFTEN`` of the steps on, and by ``SIGMAS`` standard deviations above chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .columns import Ints

OFTEN = 0.25
"""Share of steps from which on a rank that is last is worth a name, ..."""

SIGMAS = 3.0
"""... if it is by as many standard deviations above one of the ranks taking turns at random: one
is always last."""


@dataclass(frozen=True, slots=True)
class OftenLast:
    """A rank, by its row, that is last at ``bucket`` in ``times`` of ``of`` steps."""

    row: int
    bucket: int
    times: int
    of: int


def often(ranks: int, steps: int) -> float:
    """Return the share of steps from which on a rank comes last often, and not by chance.

    A step is a draw of 1 / ``ranks``, so ``steps`` draws spread by sqrt(p (1 - p) / steps).
    """
    chance = 1 / max(1, ranks)
    return max(OFTEN, chance + SIGMAS * math.sqrt(chance * (1 - chance) / max(1, steps)))


def often_last(last: Ints, bucket: Ints, ranks: int) -> list[OftenLast]:
    """Return the ranks that beat chance, each at the bucket where it is last in the most steps.

    ``last``: the row of the rank that was last, below 0 for none; ``bucket``: both of each key, one
    a bucket and step.
    """
    found = []
    of = np.bincount(bucket) if len(bucket) else np.zeros(0, np.int64)
    for row in np.unique(last[last >= 0]).tolist():
        times = np.bincount(bucket[last == row], minlength=len(of))
        worst = int(np.argmax(times / np.maximum(of, 1)))
        if times[worst] / of[worst] >= often(ranks, int(of[worst])):
            found.append(OftenLast(row, worst, int(times[worst]), int(of[worst])))
    return sorted(found, key=lambda one: -one.times / one.of)
