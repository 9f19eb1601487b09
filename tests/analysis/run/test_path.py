"""Critical paths: of steps whose truth is known, and properties of those of any."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hooktrace.analysis.run import UNKNOWN, CriticalPaths
from hooktrace.analysis.run.path import CriticalPath
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.run.files import MS, Times, write_times
from tests.analysis.runs import run_in


def path_of(folder: Path, step: int = 1) -> CriticalPath:
    return CriticalPaths(run_in(folder), "synthetic").of(step)


def told(path: CriticalPath) -> list[tuple[str, int, int, float]]:
    """Return kind, rank, bucket and ms of each segment."""
    return [(s.kind, s.rank, s.bucket, (s.end - s.start) / MS) for s in path.segments]


_EARLY = [(0, 1, 1, 30, 32)]
_BOTH = [_EARLY, [(10, 12, 12, 30, 31)]]
KNOWN: dict[str, tuple[list[list[list[Times]]], list[tuple[str, int, int, float]]]] = {
    "through the rank that was last": (
        [[*_BOTH, _EARLY]],
        [("compute", 1, 0, 10), ("compress", 1, 0, 2), ("transfer", UNKNOWN, 0, 18),
         ("decompress", UNKNOWN, 0, 2)]),
    "back to the end of the step before": (
        [_BOTH, [[(60, 61, 61, 90, 91)], [(50, 51, 51, 90, 92)]]],
        [("compute", 0, 0, 28), ("compress", 0, 0, 1), ("transfer", UNKNOWN, 0, 29),
         ("decompress", 1, 0, 2)]),
    "to the call whose decompress held the worker": (
        [[[(0, 1, 1, 40, 42), (5, 6, 42, 60, 61)], [(10, 12, 12, 40, 43), (15, 16, 43, 60, 62)]]],
        [("compute", 1, 0, 10), ("compress", 1, 0, 2), ("transfer", UNKNOWN, 0, 28),
         ("decompress", 1, 0, 3), ("transfer", UNKNOWN, 1, 17), ("decompress", 1, 1, 2)]),
    "to a queue that another model's collectives may explain": (
        [[[(0, 1, 8, 20, 21)], [(3, 4, 14, 20, 22)]]],
        [("compute", 1, 0, 3), ("compress", 1, 0, 1), ("queue", 1, 0, 10),
         ("transfer", UNKNOWN, 0, 6), ("decompress", 1, 0, 2)]),
    "through an earlier compress, which is not backward": (
        [[[(0, 1, 1, 8, 9), (5, 6, 6, 40, 41)], [(2, 6, 6, 8, 9), (16, 19, 19, 40, 43)]]],
        [("compute", 1, 1, 2), ("compress", 1, 0, 4), ("compute", 1, 1, 10),
         ("compress", 1, 1, 3), ("transfer", UNKNOWN, 1, 21), ("decompress", 1, 1, 3)]),
}  # fmt: skip
"""Steps, and the path of the last one."""


@pytest.mark.parametrize(("steps", "expected"), KNOWN.values(), ids=KNOWN)
def test_it_leads_through_what_the_step_waited_for(
    tmp_path: Path,
    steps: list[list[list[Times]]],
    expected: list[tuple[str, int, int, float]],
) -> None:
    """Kind, rank, bucket and ms of each segment; all of a step is on its path."""
    write_times(tmp_path, steps)
    path = path_of(tmp_path, len(steps))
    assert told(path) == expected
    assert path.end - path.start == sum(ms for *_, ms in expected) * MS
    assert len(steps) == 1 or path.start == path_of(tmp_path, 1).end


def test_ranks_that_the_clocks_do_not_tell_apart_are_not_named(tmp_path: Path) -> None:
    same = [(0.0, 1.0, 1.0, 20.0, 21.0)]
    write_times(tmp_path, [[same, [(0.01, 1.01, 1.01, 20.01, 21.01)]]])
    path = path_of(tmp_path)
    assert {one.rank for one in path.segments} == {UNKNOWN}
    assert {one.lane for one in path.segments} == {1}


def test_it_says_why_there_is_none(tmp_path: Path) -> None:
    write_job(SyntheticJob(ranks=3, steps=2), tmp_path / "part")
    find_records(tmp_path / "part")[2][0].unlink()
    assert "2 of 3 ranks have a file" in (path_of(tmp_path / "part").why_unknown or "")
    write_job(SyntheticJob(ranks=3, steps=2, clocks=False), tmp_path / "clocks")
    assert path_of(tmp_path / "clocks").why_unknown == "nobody measured the clock of ranks 1, 2"
    write_job(SyntheticJob(ranks=3, steps=2), tmp_path / "all")
    assert "0 of 3 ranks have step 9" in (path_of(tmp_path / "all", 9).why_unknown or "")
    write_times(tmp_path / "apart", [[[(0, 1, 1, 9, 9)], [(10, 12, 12, 30, 31)]]])
    path = path_of(tmp_path / "apart")
    assert "which rank began the collective of bucket 0 last" in (path.why_unknown or "")


_LENGTHS = st.floats(0, 20).map(lambda ms: round(ms, 6))


@st.composite
def jobs(draw: st.DrawFn) -> list[list[list[Times]]]:
    """Return two steps of 2 or 3 ranks: whatever times, but that collectives end at once."""
    ranks, buckets = draw(st.integers(2, 3)), draw(st.integers(1, 3))
    steps, base = [], 0.0
    for _ in range(2):
        ready = [[base + draw(_LENGTHS) for _ in range(buckets)] for _ in range(ranks)]
        own: list[list[Times]] = [[] for _ in range(ranks)]
        for bucket in range(buckets):
            encoded = [row[bucket] + draw(_LENGTHS) for row in ready]
            sent = [at + draw(st.just(0.0) | _LENGTHS) for at in encoded]
            end = max(sent) + draw(_LENGTHS)
            for rank in range(ranks):
                times = ready[rank][bucket], encoded[rank], sent[rank], end, end + draw(_LENGTHS)
                own[rank].append(times)
        steps.append(own)
        base = max(times[-1] for of_rank in own for times in of_rank) + draw(_LENGTHS)
    return steps


@settings(max_examples=40, deadline=None)
@given(jobs())
def test_segments_are_contiguous_and_sum_up_to_the_step(job: list[list[list[Times]]]) -> None:
    """Whatever the job, and the steps leave nothing out between them."""
    with TemporaryDirectory() as folder:
        write_times(Path(folder), job)
        paths = [path_of(Path(folder), number) for number in (1, 2)]
    for path in paths:
        assert path.why_unknown is None
        edges = [path.start, *(one.end for one in path.segments)]
        assert [one.start for one in path.segments] == edges[:-1]
        assert edges[-1] == path.end
        assert all(one.start < one.end for one in path.segments)
    first = min(times[0] for rank in job[0] for times in rank)
    last = [max(times[-1] for rank in step for times in rank) for step in job]
    assert paths[0].end - paths[0].start == pytest.approx((last[0] - first) * MS, abs=2)
    assert paths[1].start == paths[0].end
    assert paths[1].end - paths[1].start == pytest.approx((last[1] - last[0]) * MS, abs=2)
