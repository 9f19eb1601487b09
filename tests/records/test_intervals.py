"""The definitions, against slow and obvious versions of themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooktrace.records.intervals import bus_bytes, exposed_ns, fifo_starts, overlap_ratio, union_ns

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda p: (p[0], p[0] + p[1]))
)


@given(intervals)
def test_union_counts_each_moment_once(spans: list[tuple[int, int]]) -> None:
    covered = {cell for start, end in spans for cell in range(start, end)}
    assert union_ns(spans) == len(covered)


def test_exposed_and_overlap() -> None:
    """What ended before the last bucket was ready is not exposed; nothing hides nothing."""
    assert (exposed_ns(100, 130), exposed_ns(100, 90)) == (30, 0)
    ratios = [overlap_ratio(*one) for one in ((0, 80), (80, 80), (20, 80), (0, 0))]
    assert ratios == [1.0, 0.0, 0.75, 1.0]


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50)), max_size=40).map(sorted),
    st.integers(1, 4),
)
def test_queue_model_recovers_a_servers_starts(jobs: list[tuple[int, int]], workers: int) -> None:
    """From launches and ends alone the model finds when a FIFO server started each job."""
    free = [0] * workers
    starts, ends = [], []
    for launch, length in jobs:
        worker = min(range(workers), key=lambda w: free[w])
        starts.append(max(launch, free[worker]))
        free[worker] = starts[-1] + length
        ends.append(free[worker])
    assert fifo_starts([launch for launch, _ in jobs], ends, workers) == starts


def test_queue_model_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="at least 1 worker, not 0"):
        fifo_starts([0], [1], 0)


@pytest.mark.parametrize(
    ("collective", "expected"),
    [
        ("all_reduce", 1000 * 2 * 3 / 4),
        ("all_gather", 4 * 1000 * 3 / 4),
        ("reduce_scatter", 1000 * 3 / 4),
        ("all_to_all", 1000 * 3 / 4),
        ("broadcast", 1000),
        ("send_recv", 1000),
        ("something else", None),
    ],
)
def test_bus_bytes_follow_nccl_tests(collective: str, expected: float | None) -> None:
    """4 ranks and a payload of 1000 bytes, by the formulas of nccl-tests."""
    assert bus_bytes(collective, 1000, 4) == expected
