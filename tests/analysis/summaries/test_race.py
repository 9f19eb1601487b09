"""Tables of single ranks, merged in any order: what all at once would have said."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from hooktrace.analysis.summaries.race import Table, entered
from hooktrace.analysis.timeline import last_rank


def tables(called: np.ndarray, unsure: np.ndarray) -> list[Table]:
    keys = np.arange(called.shape[1])
    return [
        Table(keys, {"count": np.ones_like(own), "first": own, **entered(rank, own, off)})
        for rank, (own, off) in enumerate(zip(called, unsure, strict=True))
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_last_rank_is_that_of_all_at_once(seed: int) -> None:
    """Whoever is merged with whom first; ties and clocks that do not tell are among them."""
    random = np.random.default_rng(seed)
    called = random.integers(0, 12, (9, 400))
    unsure = random.integers(0, 3, (9, 400))
    waiting = tables(called, unsure)
    while len(waiting) > 1:
        i, j = sorted(random.choice(len(waiting), 2, replace=False).tolist())
        waiting.append(waiting.pop(j).merged(waiting.pop(i)))
    found = waiting[0].columns
    last, margin, _ = last_rank(called, unsure, np.ones(called.shape, np.bool_))
    told = found["last"] - found["last_unsure"] > found["others_latest"]
    assert np.array_equal(np.where(told, found["last_rank"], -1), last)
    assert np.array_equal(found["last"] - found["next"], margin)
    assert np.array_equal(found["last_rank"], called.argmax(axis=0))
    assert np.array_equal(found["first"], called.min(axis=0))
    assert (found["count"] == 9).all()


def test_steps_that_only_some_ranks_have() -> None:
    """Nobody is in the others' place: counts say how many there were."""
    one = Table(np.array([1, 2]), {"count": np.array([1, 1]), "wire_least": np.array([5.0, 6.0])})
    two = Table(np.array([2, 4]), {"count": np.array([1, 1]), "wire_least": np.array([4.0, 7.0])})
    found = reduce(Table.merged, [one, two])
    assert found.keys.tolist() == [1, 2, 4]
    assert found.columns["count"].tolist() == [1, 2, 1]
    assert found.columns["wire_least"].tolist() == [5.0, 4.0, 7.0]
