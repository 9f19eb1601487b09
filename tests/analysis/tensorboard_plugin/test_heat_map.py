"""Ranks by steps: each value of a job of which one knows them, and bins that hide no slow step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hooktrace.analysis.run import UNKNOWN
from hooktrace.analysis.tensorboard_plugin import heat_map as module
from hooktrace.analysis.tensorboard_plugin.heat_map import VALUES, heat_map, union_of_groups
from hooktrace.analysis.tensorboard_plugin.runs import NotThereError
from hooktrace.records.files import find_records
from hooktrace.records.intervals import union_ns
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job
from tests.analysis.runs import run_in, tab_of

MS = 1_000_000


def map_of(folder: Path, value: str, columns: int = 1000) -> tuple[dict[str, Any], Any]:
    """Return the answer, and its cells as (ranks, columns)."""
    run = run_in(folder)
    found = heat_map(run, tab_of(run), value, columns)
    return found, np.array(found["cells"]).reshape(len(found["ranks"]), -1)


def test_the_late_rank_is_behind_and_nobody_else(tmp_path: Path) -> None:
    """By what it is late, in each step in which it is; the others wait, and transfer alike."""
    job = SyntheticJob(
        ranks=8, steps=6, late_ms={5: 12.0}, late_every=2, jitter_ms=0.0,
        bucket_bytes=(4_000_000,) * 2,
    )  # fmt: skip
    write_job(job, tmp_path)
    found, lag = map_of(tmp_path, "lag")
    assert lag[5].tolist() == [12 * MS, 0] * 3
    assert not np.delete(lag, 5, axis=0).any()
    assert (found["low"], found["high"], found["unknown"]) == (0, 12 * MS, "")
    assert found["unsure"] == pytest.approx(40_000, rel=0.2)
    _, wait = map_of(tmp_path, "wait")
    assert not wait[5].any()
    assert (np.delete(wait, 5, axis=0)[:, ::2] == 24 * MS).all()  # of both of its buckets
    assert not wait[:, 1::2].any()
    _, transfer = map_of(tmp_path, "transfer")
    assert (transfer == transfer[5]).all()
    assert (map_of(tmp_path, "wire")[1] == wait + transfer).all()


def test_exposed_and_period_are_the_records(tmp_path: Path) -> None:
    """Of each rank; a last step has no period, and it is said why."""
    job = SyntheticJob(ranks=3, steps=5, slow_every=2)
    write_job(job, tmp_path)
    records = [[step.completed(rank)[0] for step in simulate(job)] for rank in range(3)]
    found, exposed = map_of(tmp_path, "exposed")
    assert exposed.tolist() == [[r.exposed_ns for r in own] for own in records]
    assert (found["step"], found["bin_steps"], found["unknown"]) == ([1, 2, 3, 4, 5], 1, "")
    found, period = map_of(tmp_path, "period")
    own = [[r.previous_period_ns for r in row[1:]] + [UNKNOWN] for row in records]
    assert period.tolist() == own
    assert "last step has none" in found["unknown"]


def test_a_bin_of_steps_shows_the_slowest_and_says_which(tmp_path: Path) -> None:
    """Nothing that stands out is averaged away."""
    job = SyntheticJob(ranks=2, steps=10, late_ms={1: 9.0}, late_every=7, jitter_ms=0.0)
    write_job(job, tmp_path)
    found, lag = map_of(tmp_path, "lag", 4)
    assert (found["bin_steps"], found["step"], found["steps"]) == (3, [1, 4, 7, 10], 10)
    assert lag[1].tolist() == [9 * MS, 0, 9 * MS, 0]  # steps 1 and 8
    assert np.array(found["at"]).reshape(2, 4)[1].tolist() == [0, 0, 1, 0]


def test_what_clocks_do_not_tell_is_unknown(tmp_path: Path) -> None:
    """No lag where they were not measured; what ranks measure themselves is there."""
    write_job(SyntheticJob(ranks=3, steps=4, late_ms={1: 9.0}, clocks=False), tmp_path)
    found, lag = map_of(tmp_path, "lag")
    assert (lag == UNKNOWN).all()
    assert "clocks of some ranks were not measured" in found["unknown"]
    assert (map_of(tmp_path, "exposed")[1] >= 0).all()


def test_a_rank_s_missing_file_leaves_the_wait_unknown(tmp_path: Path) -> None:
    """The last one may be among the others."""
    write_job(SyntheticJob(ranks=3, steps=4), tmp_path)
    find_records(tmp_path)[2][0].unlink()
    found, wait = map_of(tmp_path, "wait")
    assert (wait == UNKNOWN).all()
    assert "2 of 3 ranks have a file here" in found["unknown"]


def test_an_answer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for; and a question that means nothing is told so."""
    write_job(SyntheticJob(ranks=3, steps=40), tmp_path)
    monkeypatch.setattr(module, "MAX_CELLS", 30)
    for value in VALUES:
        assert map_of(tmp_path, value, 10**6)[1].size <= 30
    with pytest.raises(NotThereError, match="exposed, lag"):
        map_of(tmp_path, "speed")
    with pytest.raises(ValueError, match="columns must be"):
        map_of(tmp_path, "lag", 0)


def test_unions_of_groups_are_the_unions_of_each() -> None:
    """Also of groups without intervals, and far apart in time."""
    random = np.random.default_rng(0)
    group = random.integers(0, 7, 200) * 2
    start = random.integers(0, 50, 200) + group * 10**12
    end = start + random.integers(0, 9, 200)
    found = union_of_groups(group, start, end, 15)
    expected = [
        union_ns(zip(start[group == g].tolist(), end[group == g].tolist(), strict=True))
        for g in range(15)
    ]
    assert found.tolist() == expected
