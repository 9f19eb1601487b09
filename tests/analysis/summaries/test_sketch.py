"""Percentiles of parts, merged: within the bound that is promised."""

from __future__ import annotations

import pickle
import sys
from functools import reduce

import numpy as np
import pytest

from hooktrace.analysis.summaries import sketch
from hooktrace.analysis.summaries.sketch import RANK_ERROR, Sketch
from hooktrace.records.errors import UsageError

pytest.importorskip("datasketches")


def test_merged_parts_are_within_the_bound() -> None:
    """Two hundred parts of unlike sizes, as of ranks: p50, p95 and p99 stand where they should."""
    values = np.random.default_rng(0).lognormal(0, 2, 200_000)
    parts = np.split(values, np.sort(np.random.default_rng(1).integers(0, len(values), 199)))
    whole = reduce(Sketch.merged, map(Sketch, parts))
    for share in (0.5, 0.95, 0.99):
        assert abs(np.mean(values <= whole.at(share)) - share) <= RANK_ERROR
    assert (whole.at(0.0), whole.at(1.0)) == (values.min(), values.max())


def test_the_bound_is_the_librarys() -> None:
    import datasketches

    assert datasketches.kll_doubles_sketch(800).normalized_rank_error(False) <= RANK_ERROR


def test_a_sketch_travels() -> None:
    one = Sketch(np.array([3.0, np.nan, 1.0]))
    other = pickle.loads(pickle.dumps(one))
    assert [other.at(share) for share in (0.0, 0.5, 1.0)] == [1.0, one.at(0.5), 3.0]


def test_of_nothing_there_is_no_percentile() -> None:
    assert Sketch(np.array([np.nan])).at(0.5) is None


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    sketch._library.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'hooktrace\[cluster\]'"):
        Sketch()
    monkeypatch.undo()
    sketch._library.cache_clear()
