"""The tab's late ranks are the report's: which bars it marks, and what it says of nobody."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hooktrace.analysis.tensorboard_plugin.late_bars import LateBars, late_in
from hooktrace.analysis.timeline import load
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import write_changed
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.report.test_silence import nobody_waits

MS = 1_000_000
JOB = SyntheticJob(steps=40, late_ms={2: 2.6}, late_from=3)


def late_of(folder: Path, model: str = JOB.model) -> tuple[list[LateBars], str]:
    """Return what is said of a folder."""
    return late_in(load(find_records(folder)), model)


def test_bars_are_marked_where_others_wait_often(tmp_path: Path) -> None:
    """From the bucket on at which it falls behind; before that it is last by chance alone."""
    write_job(JOB, tmp_path)
    (late,), note = late_of(tmp_path)
    assert (late.rank, late.times, late.of, note) == (2, 40, 40, "")
    assert late.margin_ns == pytest.approx(2.6 * MS, rel=0.1)
    assert len(late.keys) == 40 * 5
    assert set((late.keys & 0xFFFFF).tolist()) == {3, 4, 5, 6, 7}


def test_probed_steps_are_not_marked(tmp_path: Path) -> None:
    """A probe takes each rank as long as it does."""
    write_job(dataclasses.replace(JOB, error=0.1, error_every=10), tmp_path)
    (late,), _ = late_of(tmp_path)
    assert (late.times, late.of, len(late.keys)) == (36, 36, 36 * 5)
    assert {10, 20, 30, 40}.isdisjoint((late.keys >> 20).tolist())


def test_what_is_said_of_nobody_is_true(tmp_path: Path) -> None:
    """Of a rank that nobody waits for, of clocks that nobody measured, and of a device."""
    write_changed(tmp_path / "a", dataclasses.replace(JOB, late_from=0), nobody_waits)
    assert "none that others wait for is last in 25 %" in late_of(tmp_path / "a")[1]
    write_job(dataclasses.replace(JOB, clocks=False), tmp_path / "b")
    assert late_of(tmp_path / "b")[1] == (
        "No rank is named: the clocks of all ranks were never known at once."
    )
    write_sharded(ShardedJob(late_ms={1: 3.0}, on_device=True), tmp_path / "c")
    assert "on a device the host's calls do not tell" in late_of(tmp_path / "c", "net")[1]
    write_job(dataclasses.replace(JOB, ranks=1, late_ms={}), tmp_path / "d")
    assert late_of(tmp_path / "d") == ([], "")


def test_a_sharded_model_s_late_rank_is_marked_at_each_unit(tmp_path: Path) -> None:
    """It is late by 3 ms to every collective, which is no 2 % of a step, and 42 ms in all."""
    write_sharded(ShardedJob(late_ms={1: 3.0}), tmp_path)
    (late,), _ = late_of(tmp_path, "net")
    assert (late.rank, late.times, late.of, late.margin_ns) == (1, 30, 30, 3 * MS)
    assert len(late.keys) == 30 * 14
