"""A line that odd points do not move."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.whatif.theil_sen import line


def test_one_odd_point_of_five_moves_nothing() -> None:
    """The slope and the intercept are those of the others."""
    x = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    y = 3 * x + 5
    y[2] += 100
    assert line(x, y) == pytest.approx((3.0, 5.0))
