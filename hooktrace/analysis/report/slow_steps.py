"""Steps that take much longer than the others, and where in them the time goes."""

from __future__ import annotations

import numpy as np

from .facts import SlowSteps
from .step_arrays import Floats, StepArrays, medians, middle

SLOW = 1.5
"""A step is slow from so many median periods on."""


def slow_steps(arrays: StepArrays) -> SlowSteps | None:
    """Return the slow steps; ``None`` where there are none, or fewer than 8 periods are known.

    A period counts from one step's first bucket to the next one's, so what a long one holds is the
    communication of the step before it.
    """
    period = medians(arrays.period, axis=0)
    known = int(np.count_nonzero(~np.isnan(period)))
    usual = middle(period)
    if known < 8 or usual <= 0:
        return None
    slow = np.flatnonzero(period >= SLOW * usual)
    slow = slow[slow > 0]
    if not len(slow):
        return None
    beyond = period[slow] - usual

    def excess(values: Floats) -> float:
        more = np.nan_to_num(values[slow - 1] - middle(values))
        return float(np.clip(more, 0.0, beyond).sum()) / known

    backward = np.fmax.reduce(arrays.ready, axis=2, initial=np.nan)
    backward -= np.fmin.reduce(arrays.ready, axis=2, initial=np.nan)
    worst = slow[np.argsort(-period[slow], kind="stable")]
    return SlowSteps(
        steps=tuple(int(s) for s in arrays.steps[worst - 1]),
        periods=known,
        slowest_ns=float(period[worst[0]]),
        excess_ns=float(beyond.sum()) / known,
        exposed_excess_ns=excess(medians(arrays.exposed, axis=0)),
        backward_excess_ns=excess(medians(backward, axis=0)),
    )
