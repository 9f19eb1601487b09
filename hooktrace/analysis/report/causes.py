"""Steps that are slow: what they cost, in what, and for whom others wait in them.

StepArrays --> SlowSteps
"""

from __future__ import annotations

import numpy as np

from ..run import UNKNOWN
from ..run.dense import Floats, StepArrays, medians, middle
from ..run.late import late_in
from .facts import SlowSteps

SLOW = 1.5
"""A step is slow from so many median periods on."""


def slow_steps(arrays: StepArrays) -> SlowSteps | None:
    """Return the slow steps; ``None`` where there are none, or fewer than 8 periods are known."""
    period = arrays.job_period
    known = int(np.count_nonzero(~np.isnan(period)))
    usual = middle(period)
    slow = np.flatnonzero(period >= SLOW * usual)
    if known < 8 or usual <= 0 or not len(slow):
        return None
    beyond = period[slow] - usual
    total = float(beyond.sum()) / known
    # The median over ranks, of an even number the upper middle: of two the one that waits.
    exposed = np.sort(arrays.exposed, axis=0)  # NaN comes last
    upper = np.count_nonzero(~np.isnan(exposed), axis=0)[None] // 2
    exposed = np.take_along_axis(exposed, upper.clip(max=len(exposed) - 1), axis=0)[0]
    more = exposed[slow] - middle(exposed)
    exposed_ns = _part_of(total, beyond, more)
    late_rank, late_ns = None, 0.0
    if exposed_ns is not None and exposed_ns >= total / 4:  # else hardly anybody waits
        places = [arrays.detailed.place_of(step) for step in arrays.steps[slow].tolist()]
        told = np.array(places) != UNKNOWN
        least = float(np.nansum(np.clip(more, 0.0, beyond)[told])) / 2
        late_rank, late_ns = late_in(arrays.detailed, np.array(places)[told], least)
    in_backward: float | None = 0.0
    if not arrays.is_sharded:
        backward = medians(arrays.backward, axis=0)
        in_backward = _part_of(total, beyond, backward[slow] - middle(backward))
    worst = slow[np.argsort(-period[slow], kind="stable")]
    return SlowSteps(
        steps=tuple(arrays.steps[worst].tolist()),
        periods=known,
        slowest_ns=float(period[worst[0]]),
        excess_ns=total,
        exposed_excess_ns=exposed_ns,
        backward_excess_ns=in_backward,
        late_rank=late_rank,
        late_ns=late_ns,
    )


def _part_of(total: float, beyond: Floats, more: Floats) -> float | None:
    """Return how much of ``total`` is of one kind; ``None`` where no slow step tells.

    ``beyond``: what each slow step takes beyond the median, ``more``: what it does of that kind.
    Steps that do not tell are taken to have the same share of it as those that do.
    """
    known = ~np.isnan(more)
    if not known.any():
        return None
    found = np.clip(more[known], 0.0, beyond[known]).sum()
    return total * float(found / beyond[known].sum())
