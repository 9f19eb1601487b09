"""Who is late and what is exposed, of jobs of which one knows it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hooktrace.analysis.run.parts import tails
from hooktrace.exporters.retention import Retention
from hooktrace.records import BucketRecord, CompletedStep
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.report.jobs import (
    MS,
    QUIET,
    facts_of,
    found_in,
    model_of,
    one,
    report_of,
    write_changed,
    write_kept,
)
from tests.analysis.run.files import timed_by_device
from tests.analysis.runs import arrays_of, job_run


def test_a_late_rank_is_found_with_its_bucket(tmp_path: Path) -> None:
    """Rank 2 falls behind at bucket 3 by 7 ms; the clocks are known to 20 us each."""
    model = model_of(
        dataclasses.replace(QUIET, late_ms={2: 7.0}, late_from=3, jitter_ms=0.2), tmp_path
    )
    (late,) = model.late
    assert (late.rank, late.since, late.share) == (2, 3, 1.0)
    assert not late.is_late_from_the_start
    assert late.margin_ns == pytest.approx(7 * MS, rel=0.05)
    assert late.lag_ns == pytest.approx(7 * MS, rel=0.05)
    assert 20_000 <= late.uncertainty_ns <= 40_000
    (report,) = report_of(tmp_path).models
    assert report.arrays.lags[2, 3:] == pytest.approx(7 * MS, rel=0.05)
    assert (report.arrays.lags[:2] < 0.3 * MS).all()


@pytest.mark.parametrize("waits", [True, False])
def test_on_a_device_a_rank_is_late_that_others_wait_for(tmp_path: Path, waits: bool) -> None:
    """Not one whose host alone comes late, while its device still works on what it had."""
    job = dataclasses.replace(QUIET, late_ms={2: 7.0}, late_from=3)

    def change(rank: int, step: CompletedStep) -> CompletedStep:
        record, buckets = timed_by_device(step)
        return record, buckets if waits else tuple(map(with_short_wires, buckets))

    write_changed(tmp_path, job, change)
    late = facts_of(tmp_path).late
    assert [one.rank for one in late] == [2] * waits
    assert all(one.margin_ns == pytest.approx(7 * MS, rel=0.05) for one in late)


def with_short_wires(bucket: BucketRecord) -> BucketRecord:
    assert bucket.device is not None
    stages = tuple(
        replace(s, start_ns=s.end_ns - 1000) if s.name == "wire" else s
        for s in bucket.device.stages
    )
    return replace(bucket, device=replace(bucket.device, stages=stages))


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_take_turns_are_not_late(tmp_path: Path, ranks: int) -> None:
    """One of them is always last: of two each in half of the steps."""
    assert model_of(dataclasses.replace(QUIET, ranks=ranks, jitter_ms=5.0), tmp_path).late == ()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.integers(10_000, 20_000_000), min_size=1, max_size=9),
    st.integers(0, 3),
)
def test_what_buckets_add_is_what_is_exposed(
    tmp_path_factory: pytest.TempPathFactory, ranks: int, sizes: list[int], seed: int
) -> None:
    """On every rank and step, whatever the buckets are like."""
    folder = tmp_path_factory.mktemp("job")
    arrays = arrays_of(
        job_run(SyntheticJob(ranks=ranks, steps=4, bucket_bytes=tuple(sizes), seed=seed), folder)
    )
    added = tails(arrays)
    assert (added >= 0).all()
    assert np.abs(added.sum(axis=2) - arrays.exposed).max() <= 2  # ns, of a double's rounding


def test_only_those_wait_whose_results_come_after_the_late_rank(tmp_path: Path) -> None:
    """Of two pairs that drift apart: in some steps the other pair is done before."""

    def in_pairs(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        if rank < 2 and step.step % 4 == 0:
            buckets = tuple(replace(b, done_ns=b.launched_ns + MS) for b in buckets)
        return step, buckets

    write_changed(tmp_path, dataclasses.replace(QUIET, ranks=4, late_ms={2: 7.0}), in_pairs)
    (late,) = facts_of(tmp_path).late
    assert (late.rank, late.waiting) == (2, (3,))
    sentence = one(found_in(tmp_path), "Rank 2 (host-0) is late").sentence
    assert "and rank 3 waits for it, 7.0" in sentence


FEW = Retention(first_steps=0, window_steps=2, window_every=20, extra_share=0.0)
"""Keeps the buckets of every tenth step, whether or not a step is slow."""


def test_steps_without_buckets_say_nothing_of_tails(tmp_path: Path) -> None:
    """Nine of ten steps were left without: each bucket's share is that of the steps with them."""
    job = SyntheticJob(ranks=2, steps=300, bucket_bytes=(30_000_000, 4_000_000), backward_ms=10.0)
    everything = model_of(job, tmp_path / "all")
    write_kept(tmp_path / "few", job, FEW)
    kept = facts_of(tmp_path / "few")
    shares = [bucket.tail_share for bucket in kept.buckets]
    assert shares == pytest.approx([b.tail_share for b in everything.buckets], abs=0.02)
    first = one(found_in(tmp_path / "few"), "Exposed communication is")
    assert [text for text in first.evidence if "what backward leaves over" in text]


def test_a_share_that_no_step_tells_is_not_known(tmp_path: Path) -> None:
    """Steps of which the exposed time is not known have buckets, and no tails."""

    def unresolved(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        return replace(step, exposed_ns=None), buckets

    write_changed(tmp_path, QUIET, unresolved)
    (model,) = report_of(tmp_path).models
    assert {b.tail_share for b in model.facts.buckets} == {None}
    assert np.isnan(tails(model.arrays)).all()


def test_slow_steps_without_buckets_have_their_backward_pass(tmp_path: Path) -> None:
    """Every 25th step computes for 100 ms more, which the step's own line says."""
    job = dataclasses.replace(QUIET, ranks=2, steps=200)

    def slow(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        if step.step % 25 == 0:
            step = replace(
                step, last_ready_ns=step.last_ready_ns + 100 * MS, done_ns=step.done_ns + 100 * MS
            )
        if step.step % 25 == 1 and step.previous_period_ns is not None:
            step = replace(step, previous_period_ns=step.previous_period_ns + 100 * MS)
        return step, buckets

    write_kept(tmp_path, job, FEW, slow)
    found = facts_of(tmp_path).slow
    assert found is not None
    assert len(found.steps) == 7  # of step 200 the period is not known
    assert found.backward_excess_ns == pytest.approx(found.excess_ns, rel=0.02)
    finding = one(found_in(tmp_path), "times the median or more")
    assert "mostly in backward" in finding.sentence


def test_a_rank_has_as_many_steps_as_its_lines_say(tmp_path: Path) -> None:
    """Its step time and exposed time are medians of them all, with buckets or without."""
    job = dataclasses.replace(QUIET, ranks=2, steps=100)
    write_kept(tmp_path, job, FEW)
    assert [rank.steps for rank in facts_of(tmp_path).ranks] == [100, 100]
