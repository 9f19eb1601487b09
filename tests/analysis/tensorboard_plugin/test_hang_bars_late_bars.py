"""The tab's late ranks are the report's: which bars it marks, and what it says of nobody."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hooktrace.analysis.tensorboard_plugin.hang_bars import LateBars, late_bars
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.jobs import nobody_waits
from tests.analysis.report.jobs import write_changed
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.runs import run_in

MS = 1_000_000
JOB = SyntheticJob(steps=40, late_ms={2: 2.6}, late_from=3)


def late_of(folder: Path, model: str = JOB.model) -> tuple[list[LateBars], str]:
    """Return what is said of a folder."""
    return late_bars(run_in(folder), model)


def test_bars_are_marked_where_others_wait_often(tmp_path: Path) -> None:
    """From the bucket on at which it falls behind, and in no step that was probed."""
    write_job(dataclasses.replace(JOB, error=0.1, error_every=10), tmp_path)
    (late,), note = late_of(tmp_path)
    assert (late.rank, late.times, late.of, note) == (2, 36, 36, "")
    assert late.margin_ns == pytest.approx(2.6 * MS, rel=0.1)
    assert len(late.keys) == 36 * 5
    assert set((late.keys & 0xFFFFF).tolist()) == {3, 4, 5, 6, 7}
    assert {10, 20, 30, 40}.isdisjoint((late.keys >> 20).tolist())


def test_what_is_said_of_nobody_is_true(tmp_path: Path) -> None:
    """Of a rank that nobody waits for, of clocks that nobody measured, and of a device."""
    write_changed(tmp_path / "a", dataclasses.replace(JOB, late_from=0), nobody_waits)
    assert late_of(tmp_path / "a")[1] == (
        "No rank is named: none that others wait for is last in 25 % of the steps or more, beyond "
        "chance and what clocks may be off, and by 0.5 % of a step in the mean."
    )
    write_job(dataclasses.replace(JOB, clocks=False), tmp_path / "b")
    assert late_of(tmp_path / "b")[1] == (
        "No rank is named: the clocks of all ranks were never known at once."
    )
    write_sharded(ShardedJob(late_ms={1: 3.0}, on_device=True), tmp_path / "c")
    assert "on a device the host's calls do not tell" in late_of(tmp_path / "c", "net")[1]
    write_job(dataclasses.replace(JOB, ranks=1, late_ms={}), tmp_path / "d")
    assert late_of(tmp_path / "d") == ([], "")
