"""Who waits for a rank, and from when on that is worth a name: of buckets and of units.

One rank is always last, and where ranks take turns each is in its share of the steps.

Times of a bucket on all ranks --waiting_ranks--> those that have its result only when one is ready
"""

from __future__ import annotations

import math

import numpy as np

from ...records.units import percent
from .step_arrays import Floats

OFTEN = 0.25
"""Share of steps from which on a rank that is last is worth a name, ..."""

SIGMAS = 3.0
"""... if it is by as many standard deviations above one of the ranks taking turns at random."""

WORTH = 0.005
"""Of the median period: the margin from which on a rank that is late is worth a name."""

SURELY = 0.95
"""Of the steps: in which one that waits for a rank has its result after that rank is ready."""

MOSTLY = 0.75
"""Of all margins of slow steps: what a rank has to be late by to be named."""


def often(ranks: int, steps: int) -> float:
    """Return the share of steps from which on a rank comes last often, and not by chance.

    A step is a draw of 1 / ``ranks``, so ``steps`` draws spread by sqrt(p (1 - p) / steps).
    """
    chance = 1 / max(1, ranks)
    return max(OFTEN, chance + SIGMAS * math.sqrt(chance * (1 - chance) / max(1, steps)))


def waiting_ranks(done: Floats, ready: Floats, i: int) -> list[int]:
    """Return who has a result only after the i-th rank has it ready, ``SURELY`` always, or may.

    ``done``, ``ready``: (ranks, steps).  Of a hook that sends nothing, or to some ranks only, the
    others do not wait.
    """
    known = np.maximum(np.count_nonzero(np.isfinite(done) & np.isfinite(ready[i]), axis=1), 1)
    before = np.count_nonzero(done < ready[i], axis=1) / known
    return [j for j in np.flatnonzero(before <= 1 - SURELY).tolist() if j != i]


def why_nobody(*, is_order_known: bool, is_sharded: bool, is_on_device: bool) -> str:
    """Return why no rank is called late, in a clause."""
    if is_sharded and is_on_device:
        return "on a device the host's calls do not tell when a rank comes to a unit's collective"
    if not is_order_known:
        return "the clocks of all ranks were never known at once"
    return (
        f"none that others wait for is last in {percent(OFTEN)} of the steps or more, beyond "
        f"chance and what clocks may be off, and by {percent(WORTH)} of a step in the mean"
    )
