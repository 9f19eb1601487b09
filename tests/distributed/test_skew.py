"""The late rank, told by its arrivals: online on 4 real gloo ranks, and from their record files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hooktrace.analysis.run import Arrivals, arrivals, load
from hooktrace.records.files import find_records
from tests.distributed import skew_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.skew_scenarios import FORWARD, LATE_S, LAYER

pytestmark = pytest.mark.slow

BUCKETS = 6
BEHIND = [3, 4, 5]
"""Buckets of what comes after layer 2's output in the backward pass: layers 2, 1 and 0."""


@pytest.fixture(scope="module")
def seen(four: Ranks) -> Iterator[list[Any]]:
    """What each of 4 ranks saw of one run."""
    facts = four.run(skew_scenarios.late_ranks)
    yield facts
    shutil.rmtree(facts[0]["directory"], ignore_errors=True)


@pytest.fixture(scope="module")
def merged(seen: list[Any]) -> Arrivals:
    """The arrivals of all ranks' files."""
    run = load(find_records(seen[0]["directory"]))
    assert run.unaligned == []
    return arrivals(run, "model0")


def test_clocks_of_one_host_agree(seen: list[Any]) -> None:
    """The same clock is read everywhere, so the offset is all error, and within its bound."""
    ranks = seen
    assert ranks[0]["clocks"] == []
    for facts in ranks[1:]:
        assert facts["clocks"]
        for offset_ns, uncertainty_ns in facts["clocks"]:
            assert abs(offset_ns) <= uncertainty_ns
        assert min(uncertainty_ns for _, uncertainty_ns in facts["clocks"]) < LATE_S * 1e9 / 4


WINDOWS = [(FORWARD, 1, list(range(BUCKETS))), (LAYER, 2, BEHIND)]


@pytest.mark.parametrize(("steps", "late", "buckets"), WINDOWS)
def test_the_late_rank_is_named_online(
    seen: list[Any], steps: range, late: int, buckets: list[int]
) -> None:
    """At each bucket that it was late for, by all ranks alike; its own lag is the delay."""
    ranks = seen
    assert len({tuple(row[:3] for row in facts["skews"]) for facts in ranks}) == 1
    windows = [[row for row in facts["skews"] if row[0] in steps] for facts in ranks]
    for rows in zip(*windows, strict=True):
        _, bucket, named, _ = rows[0]
        assert (named == late) == (bucket in buckets)
        if bucket in buckets:
            lags = [row[3] for row in rows]
            following = max(lag for rank, lag in enumerate(lags) if rank != late)
            assert lags[late] - following > ranks[late]["late_ns"] / 2
    assert [row[:2] for row in windows[0]] == [(s, b) for s in steps for b in range(BUCKETS)]


@pytest.mark.parametrize(("steps", "late", "buckets"), WINDOWS)
def test_the_late_rank_is_named_by_the_files(
    seen: list[Any], merged: Arrivals, steps: range, late: int, buckets: list[int]
) -> None:
    """The same, from the merged timeline."""
    named, margin = np.array([merged.last_at(key) for key in range(len(merged.step))]).T
    inside = np.isin(merged.step - seen[0]["first"], list(steps))
    for bucket in range(BUCKETS):
        here = inside & (merged.bucket == bucket)
        assert here.sum() == len(steps)
        assert set(named[here] == late) == {bucket in buckets}
        if bucket in buckets:
            assert margin[here].min() > seen[0]["late_ns"] / 2
