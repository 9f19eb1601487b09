"""From which share of the steps on a rank is last more often than by chance.

One rank is always last, and where ranks take turns each is in its share of the steps.  So a rank is
named only from ``OFTEN`` of the steps on, and by ``SIGMAS`` standard deviations above chance.
"""

from __future__ import annotations

import math

OFTEN = 0.25
"""Share of steps from which on a rank that is last is worth a name, ..."""

SIGMAS = 3.0
"""... if it is by as many standard deviations above one of the ranks taking turns at random: one
is always last."""


def often(ranks: int, steps: int) -> float:
    """Return the share of steps from which on a rank comes last often, and not by chance.

    A step is a draw of 1 / ``ranks``, so ``steps`` draws spread by sqrt(p (1 - p) / steps).
    """
    chance = 1 / max(1, ranks)
    return max(OFTEN, chance + SIGMAS * math.sqrt(chance * (1 - chance) / max(1, steps)))
