"""Who is last: the same rule for one bucket and for arrays of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hooktrace.analysis.run import UNKNOWN, last_rank
from hooktrace.records import late_rank


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=5), st.integers(0, 20), st.booleans()
)  # fmt: skip
def test_arrays_follow_the_rule_of_the_record(
    arrivals: list[int], uncertainty: int, as_floats: bool
) -> None:
    """A record knows one uncertainty of two ranks' difference; here each rank has half of it."""
    ready = np.array(arrivals)[:, None] * (1.0 if as_floats else 1)
    half = np.full(ready.shape, uncertainty) * (1.0 if as_floats else 1)
    row, margin, unsure = last_rank(ready, half, np.ones(ready.shape, bool))
    expected = late_rank(arrivals, 2 * uncertainty)
    assert row.tolist() == [UNKNOWN if expected is None else expected]
    if expected is not None:
        first, second = sorted(arrivals)[-1:-3:-1]
        assert (margin.tolist(), unsure.tolist()) == ([first - second], [2 * uncertainty])


def test_a_rank_of_an_unsure_clock_shields_the_last_one() -> None:
    """It may have come later still, though another rank came just before the last."""
    ready = np.array([[0], [90], [100]])
    uncertainty = np.array([[200], [0], [0]])
    assert last_rank(ready, uncertainty, ready >= 0)[0].tolist() == [UNKNOWN]
    assert last_rank(ready, uncertainty // 4, ready >= 0)[0].tolist() == [2]
    assert last_rank(ready, uncertainty // 4, ready > 0)[0].tolist() == [UNKNOWN]
