"""A line through medians that a few odd points do not move (Theil 1950, Sen 1968).

    values of each x --medians--> points --all pairs' slopes, weighted median--> slope, intercept

Slopes weigh as far as their two points are apart (Jaeckel 1972), since noise of a point moves that
of near ones more; what is left of a point weighs less the farther out it is, where noise, a share
of ``y``, is larger.
"""

from __future__ import annotations

import numpy as np

from .work import Floats


def line(x: Floats, y: Floats) -> tuple[float, float]:
    """Return slope and intercept of points (n,) with ``x > 0``, two at least of them different."""
    i, j = np.triu_indices(len(x), 1)
    apart = np.abs(x[i] - x[j])
    i, j, apart = i[apart > 0], j[apart > 0], apart[apart > 0]
    slope = weighted_median((y[i] - y[j]) / (x[i] - x[j]), apart)
    return slope, weighted_median(y - slope * x, 1 / x)


def weighted_median(values: Floats, weights: Floats) -> float:
    """Return the value at which half of the weight is reached.

    >>> weighted_median(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 5.0]))
    9.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
