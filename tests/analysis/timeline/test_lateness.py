"""Which ranks are last more often than by chance."""

from __future__ import annotations

import pytest

from hooktrace.analysis.timeline.lateness import often


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
