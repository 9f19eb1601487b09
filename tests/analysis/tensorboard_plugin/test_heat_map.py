"""Ranks by steps, and the run in bands: bins hide no slow step; values are in ``golden/``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hooktrace.analysis.run.parts import union_of_groups
from hooktrace.analysis.tensorboard_plugin import heat_map as module
from hooktrace.analysis.tensorboard_plugin.heat_map import MAX_BINS, VALUES, heat_map, run_bands
from hooktrace.analysis.tensorboard_plugin.runs import NotThereError
from hooktrace.records.intervals import union_ns
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.runs import job_run, run_in, tab_of

MS = 1_000_000


def map_of(folder: Path, value: str, columns: int = 1000) -> tuple[dict[str, Any], Any]:
    """Return the answer, and its cells as (ranks, columns)."""
    run = run_in(folder)
    found = heat_map(tab_of(run), value, columns)
    return found, np.array(found["cells"]).reshape(len(found["ranks"]), -1)


def test_a_bin_of_steps_shows_the_slowest_and_says_which(tmp_path: Path) -> None:
    job = SyntheticJob(ranks=2, steps=10, late_ms={1: 9.0}, late_every=7, jitter_ms=0.0)
    write_job(job, tmp_path)
    found, delay = map_of(tmp_path, "delay", 4)
    assert (found["bin_steps"], found["step"], found["steps"]) == (3, [1, 4, 7, 10], 10)
    assert delay[1].tolist() == [9 * MS, 0, 9 * MS, 0]  # steps 1 and 8
    assert np.array(found["at"]).reshape(2, 4)[1].tolist() == [0, 0, 1, 0]


def test_an_answer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for; and a question that means nothing is told so."""
    write_job(SyntheticJob(ranks=3, steps=40), tmp_path)
    monkeypatch.setattr(module, "MAX_CELLS", 30)
    for value in VALUES:
        assert map_of(tmp_path, value, 10**6)[1].size <= 30
    with pytest.raises(NotThereError, match="exposed, delay"):
        map_of(tmp_path, "speed")
    with pytest.raises(ValueError, match="columns must be"):
        map_of(tmp_path, "delay", 0)


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


def bands_of(job: SyntheticJob, folder: Path) -> dict[str, Any]:
    run = job_run(job, folder)
    return run_bands(tab_of(run))


def test_a_long_run_has_several_steps_a_bin(tmp_path: Path) -> None:
    """No more bins than the strip has room for, and the slow step is the most of its own."""
    job = SyntheticJob(ranks=1, steps=700, bucket_bytes=(4_000_000,), slow_every=600)
    bands = bands_of(job, tmp_path)
    assert len(bands["exposed"]["start"]) == 234 <= MAX_BINS
    slow = bands["exposed"]["most_step"][int(np.argmax(bands["exposed"]["most"]))]
    assert slow in {1, 601}
    assert bands["exposed"]["last"][-1] == 700
    assert bands["period"]["last"][-1] == 699  # the last step has no period
