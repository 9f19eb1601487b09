"""Ratios of blocks, and when there are enough of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest

from hooktrace.commands.bench import blocks
from hooktrace.commands.bench.blocks import Block, ratios, until_enough


def test_ratios_are_those_of_a_round() -> None:
    """Not of the medians; by the clock, and of processor time."""
    rounds = [[(3.0, 5.0), (2.0, 4.0)], [(5.0, 6.0), (4.0, 2.0)]]
    assert ratios(rounds) == [[1.5, 1.25], [1.25, 3.0]]
    assert ratios(rounds, 1, 0)[0] == [2 / 3, 0.8]


@pytest.mark.parametrize(("ratio", "count"), [(1.0, 20), (1.02, 30), (1.3, 20)])
def test_rounds_go_on_until_the_ratio_is_known(
    monkeypatch: pytest.MonkeyPatch, ratio: float, count: int
) -> None:
    """It is where all are below the limit, or above it; otherwise time ends them."""
    times = iter(range(100))
    monkeypatch.setattr(blocks, "on_all_ranks", lambda answer: answer)
    monkeypatch.setattr(blocks.time, "monotonic", lambda: next(times))
    given: Iterator[list[Block]] = repeat([(ratio, 1.0), (1.0, 1.0)])
    assert len(until_enough(given, 3.0)) == count
