"""By how much a run's usual step may be off: what is below it cannot be told from chance.

periods (R, S) --median of the ranks--> steps --blocks of them, drawn again--> medians --> +- ns

Steps are not independent, so whole blocks of steps that follow each other are drawn, in a circle:
the circular block bootstrap (Politis and Romano 1992), its blocks as long as the cube root of the
number of steps.
"""

from __future__ import annotations

import numpy as np

from .step_arrays import Floats, medians

_DRAWS = 200
_LEAST = 16
_MOST = 20_000
"""Steps that are looked at, those in the middle of a longer run."""


def noise_ns(period: Floats) -> float | None:
    """Return half the width of the median period's 95 % interval, ns; ``None`` below 16 steps."""
    steps = medians(period, axis=0)
    steps = steps[~np.isnan(steps)]
    count = len(steps)
    if count < _LEAST:
        return None
    if count > _MOST:
        first = count // 2 - _MOST // 2
        steps, count = steps[first : first + _MOST], _MOST
    length = round(count ** (1 / 3))
    blocks = -(-count // length)
    random = np.random.default_rng(0)
    found = np.empty(_DRAWS)
    for i in range(_DRAWS):
        starts = random.integers(count, size=blocks)
        rows = (starts[:, None] + np.arange(length)).ravel()[:count] % count
        found[i] = np.median(steps[rows])
    low, high = np.quantile(found, [0.025, 0.975])
    return float(high - low) / 2
