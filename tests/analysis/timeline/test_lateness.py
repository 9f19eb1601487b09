"""Which ranks are last more often than by chance."""

from __future__ import annotations

import numpy as np
import pytest

from hooktrace.analysis.timeline.lateness import OftenLast, often, often_last


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


def test_the_worst_bucket_tells() -> None:
    """A rank that falls behind in the middle of backward is last at later buckets alone."""
    bucket = np.tile([0, 1, 2], 40)
    last = np.where(bucket == 2, 3, -1)
    last[(bucket == 0) & (np.arange(120) % 4 == 0)] = 1
    assert often_last(last, bucket, 4) == [OftenLast(row=3, bucket=2, times=40, of=40)]


def test_ranks_that_take_turns_are_not_named() -> None:
    """Whoever is last by chance; nor is anybody where nothing is known."""
    rng = np.random.default_rng(1)
    bucket = np.repeat(np.arange(8), 200)
    for ranks in (2, 4, 64):
        assert often_last(rng.integers(0, ranks, 1600), bucket, ranks) == []
    nothing = np.zeros(0, np.int64)
    assert often_last(nothing, nothing, 2) == []
