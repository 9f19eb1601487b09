"""Who waits for a rank: whoever has its result only when that rank is ready."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.run.order import often, waiting_ranks


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


@pytest.mark.parametrize(
    ("times", "of", "ranks", "beats"),
    [
        (35, 100, 4, False),  # 0.25 + 3 * 0.0433 = 0.38
        (38, 100, 4, True),
        (3, 4, 4, False),
        (4, 4, 4, True),
        (10, 100, 64, False),  # beyond chance, and yet rare
        (25, 100, 64, True),
        (60, 100, 2, False),
    ],
)
def test_a_rank_is_named_beyond_three_sigmas(times: int, of: int, ranks: int, beats: bool) -> None:
    """And from a quarter of the steps on."""
    assert (times / of >= often(ranks, of)) is beats
