"""What a report says of waiting: how long, for whom in how many steps, or why nobody knows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.tensorboard_plugin.run_paths import waiting
from hooktrace.records import CompletedStep, Stage
from hooktrace.records.units import percent
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import MS, QUIET, facts_of, model_of, write_changed
from tests.analysis.runs import arrays_of, run_in, tab_of

LATE = dataclasses.replace(QUIET, ranks=4, steps=30, late_ms={2: 7.0}, late_from=3)


def test_who_is_waited_for_and_how_often(tmp_path: Path) -> None:
    """Rank 2 is 7 ms late from bucket 3 on, in two of three steps."""
    model = model_of(dataclasses.replace(LATE, late_every=3), tmp_path)
    assert model.buckets[2].waits_for is None
    assert model.buckets[4].waits_for is None, "in a third of the steps it is late"
    model = model_of(LATE, tmp_path / "each")
    assert [b.waits_for and (b.waits_for.rank, b.waits_for.share) for b in model.buckets] == [
        *[None] * 3, *[(2, 1.0)] * 5,
    ]  # fmt: skip
    assert (model.buckets[4].wait_ns, model.wait_unknown) == (7 * MS * 3 / 4, None)


def test_ranks_that_take_turns_wait_all_the_same(tmp_path: Path) -> None:
    """Who is last waits for nobody: of two ranks half of all waits are zero, and so is a median."""
    job = SyntheticJob(ranks=2, steps=40, bucket_bytes=(4_000_000,) * 3, jitter_ms=5.0)
    model = model_of(job, tmp_path)
    ns = arrays_of(run_in(tmp_path)).waited
    assert np.median(ns[..., 0]) < 0.1 * MS
    assert [b.wait_ns for b in model.buckets] == pytest.approx(ns.mean(axis=(0, 1)).tolist())
    assert all(b.wait_ns is not None and b.wait_ns > 0.5 * MS for b in model.buckets)


def test_the_report_and_the_tab_say_the_same_of_waiting(tmp_path: Path) -> None:
    """As a share of all wire time, to a percent."""
    job = SyntheticJob(ranks=2, steps=40, bucket_bytes=(4_000_000,) * 3, jitter_ms=5.0)
    model, arrays = model_of(job, tmp_path), arrays_of(run_in(tmp_path))
    wire = sum(float(arrays.stages["wire"][..., b].mean()) for b in range(3))
    waited = sum(b.wait_ns or 0.0 for b in model.buckets)
    (said, *_) = waiting(tab_of(run_in(tmp_path)))
    assert said == ["of all wire time", percent(waited / wire)]


def test_of_several_rounds_each_has_its_own_wait(tmp_path: Path) -> None:
    """A second, short collective after the first: the wait is the first one's alone."""

    def twice(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        return step, tuple(replace(b, stages=_second_round(b.stages)) for b in buckets)

    write_changed(tmp_path, LATE, twice)
    arrays = arrays_of(run_in(tmp_path))
    track, rows = arrays.rows_of_step(0, 5)
    row, place = rows[4]
    first = track.buckets.first_stage[row]
    stages = first + np.arange(track.buckets.stages[row])
    of_stages = arrays.waits.of_stages(0, stages).ns
    assert of_stages[of_stages > 0].tolist() == [7 * MS]
    assert arrays.waited[0, 5, place] == 7 * MS


def _second_round(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    *before, wire, end = stages
    middle = wire.end_ns - MS
    first, second = replace(wire, end_ns=middle), replace(wire, start_ns=middle)
    return (*before, first, second, end)


def test_collectives_that_not_all_are_in_have_no_last_rank(tmp_path: Path) -> None:
    """Ranks 0 and 1 are done with a bucket before the others begin it: groups of two."""

    def early(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        return completed if rank > 1 else (step, tuple(map(_short, buckets)))

    write_changed(tmp_path, dataclasses.replace(LATE, late_ms={2: 7.0, 3: 7.0}, late_from=0), early)
    model = facts_of(tmp_path)
    assert model.wait_unknown == "no collective had all ranks in it at once"
    assert {b.wait_ns for b in model.buckets} == {None}


def _short(bucket):  # type: ignore[no-untyped-def]
    *before, wire, end = bucket.stages
    done = wire.start_ns + MS
    stages = *before, replace(wire, end_ns=done), replace(end, start_ns=done, end_ns=done)
    return replace(bucket, stages=stages, done_ns=done)


@pytest.mark.parametrize("clocks", [True, False])
def test_transfer_and_wait_are_the_wire_time(tmp_path: Path, clocks: bool) -> None:
    """On each rank, in each step; without clocks nobody is named."""
    write_job(dataclasses.replace(LATE, clocks=clocks, jitter_ms=0.2), tmp_path)
    arrays = arrays_of(run_in(tmp_path))
    waited, wire = arrays.waited, arrays.stages["wire"]
    assert (waited >= 0).all()
    assert (waited <= wire).all()
    assert (waited[2] < 1 * MS).all()
    assert np.isnan(arrays.waited_for[:, 4]).all() == (not clocks)
