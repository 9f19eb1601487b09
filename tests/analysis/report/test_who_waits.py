"""Who waits for a rank: whoever has its result only when that rank is ready."""

from __future__ import annotations

import numpy as np

from hooktrace.analysis.report.who_waits import waiting_ranks


def test_whoever_is_done_before_does_not_wait() -> None:
    """Rank 1 is ready at 10; rank 0 has its result after that, rank 2 before."""
    done = np.array([[12.0] * 4, [12.0] * 4, [5.0] * 4])
    ready = np.array([[1.0] * 4, [10.0] * 4, [1.0] * 4])
    assert waiting_ranks(done, ready, 1) == [0]


def test_once_in_a_while_does_not_count() -> None:
    """Of a hundred steps in four."""
    done = np.full((2, 100), 12.0)
    done[0, :4] = 5.0
    ready = np.array([[1.0] * 100, [10.0] * 100])
    assert waiting_ranks(done, ready, 1) == [0]
    done[0, :6] = 5.0
    assert waiting_ranks(done, ready, 1) == []
