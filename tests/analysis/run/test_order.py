"""Who is last, how often is beyond chance, and who waits for whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooktrace.analysis.run import UNKNOWN
from hooktrace.analysis.run.clock import last_rank
from hooktrace.analysis.run.order import is_order_known, often, waiting_ranks
from hooktrace.records import late_rank
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.run.files import drop
from tests.analysis.runs import arrays_of, run_in


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


def test_whoever_is_done_before_does_not_wait() -> None:
    """Rank 1 is ready at 10: rank 2 has its result before; rank 0 in few steps, or in too many."""
    ready = np.array([[1.0] * 100, [10.0] * 100, [1.0] * 100])
    done = np.array([[12.0] * 100, [12.0] * 100, [5.0] * 100])
    done[0, :4] = 5.0
    assert waiting_ranks(done, ready, 1) == [0]
    done[0, :6] = 5.0
    assert waiting_ranks(done, ready, 1) == []


@pytest.mark.parametrize(
    ("times", "of", "ranks", "beats"),
    [
        (35, 100, 4, False),  # 0.25 + 3 * 0.0433 = 0.38
        (38, 100, 4, True),
        (10, 100, 64, False),  # beyond chance, and yet rare
        (60, 100, 2, False),
    ],
)
def test_a_rank_is_named_beyond_three_sigmas(times: int, of: int, ranks: int, beats: bool) -> None:
    assert (times / of >= often(ranks, of)) is beats


def test_one_clock_that_nobody_measured_is_enough_to_know_nothing(tmp_path: Path) -> None:
    """The last one may always be that rank, so it is not said that none is last."""
    job = SyntheticJob(ranks=3, steps=12, late_ms={1: 6.0})
    write_job(job, tmp_path)
    drop(tmp_path, [2], '"kind":"clock"')
    assert not is_order_known(arrays_of(run_in(tmp_path)))
