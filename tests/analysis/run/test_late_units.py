"""Who comes late to units: waits add up over a step, and nobody is named by guess."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hooktrace.testing.synthetic_shards import ShardedJob as Replicated
from hooktrace.testing.synthetic_shards import write_sharded_job
from tests.analysis.report.jobs import facts_of, found_in, one, report_of
from tests.analysis.report.sharded_jobs import MS, ShardedJob, write_sharded
from tests.analysis.shown import page_of


def test_a_rank_that_is_late_to_each_unit_costs_the_sum(tmp_path: Path) -> None:
    """Ten collectives, 2 ms each; DDP's rule would say 2."""
    write_sharded(ShardedJob(late_ms={1: 2.0}, again=False), tmp_path)
    (late,) = facts_of(tmp_path).late
    assert (late.rank, late.units, late.waiting) == (1, 10, (0, 2))
    assert late.margin_ns == pytest.approx(10 * 2 * MS, rel=0.01)
    finding = one(found_in(tmp_path), "is late")
    assert "at 10 collectives 20.0 ms a step" in finding.sentence


def test_where_it_falls_behind_is_between_two_collectives(tmp_path: Path) -> None:
    """Late to the fourth only, the gather of blocks.2."""
    write_sharded(ShardedJob(late_ms={2: 9.0}, late_to=(3,), again=False), tmp_path)
    (late,) = facts_of(tmp_path).late
    assert (late.rank, late.bucket, late.since, late.units) == (2, 3, 2, 1)
    finding = one(found_in(tmp_path), "is late")
    assert "at blocks.2 all-gather (forward) it is last in 100 %" in finding.sentence
    assert (
        finding.remedy == "Look at what it computes between blocks.1 all-gather (forward) and "
        "blocks.2 all-gather (forward)."
    )


def test_late_to_the_first_is_before_the_forward_pass(tmp_path: Path) -> None:
    """Data loading, for one."""
    write_sharded(ShardedJob(late_ms={1: 9.0}, late_to=(0,), again=False), tmp_path)
    finding = one(found_in(tmp_path), "is late")
    assert "before its forward pass" in finding.remedy


def test_what_nobody_waited_for_is_no_margin(tmp_path: Path) -> None:
    """Training waits for a hundredth of each collective, so for no more of the late rank."""
    write_sharded(ShardedJob(late_ms={1: 9.0}, hidden=0.99, again=False), tmp_path)
    assert sum(late.margin_ns for late in facts_of(tmp_path).late) < 10 * 0.2 * MS


def test_nobody_is_late_where_none_is(tmp_path: Path) -> None:
    """All do the same, and what each waits is known to be nothing."""
    write_sharded(ShardedJob(late_ms={}), tmp_path)
    facts = facts_of(tmp_path)
    assert (facts.late, facts.wait_unknown) == ((), None)


def test_nobody_is_named_by_unknown_clocks(tmp_path: Path) -> None:
    """Though all wait at each collective."""
    write_sharded(ShardedJob(late_ms={1: 9.0}, clocks=False), tmp_path)
    assert facts_of(tmp_path).late == ()


REPLICATED = Replicated(ranks=4, replicas=2, steps=30)
GATHER = 4
"""The first collective of its backward pass."""


def test_with_replicas_rank_and_group_are_named(tmp_path: Path) -> None:
    """Rank 3 waits in the gather, rank 0 in the all-reduce; rank 3 is late by no doing of its own.

    Each waits 50 ms, which is what the step is longer by, and not the sum of both.
    """
    job = replace(REPLICATED, late_ms={2: 50.0}, late_at=GATHER)
    write_sharded_job(job, tmp_path)
    (late,) = facts_of(tmp_path).late
    assert (late.rank, late.members, late.waiting, late.units) == (2, (2, 3), (3,), 2)
    assert late.margin_ns == pytest.approx(50 * MS, rel=0.01)
    (replicas,) = late.elsewhere
    assert (replicas.bucket, replicas.members, replicas.waiting) == (6, (0, 2), (0,))
    finding = one(found_in(tmp_path), "is late")
    assert (
        "at blocks.2 all-gather (backward), of ranks 2, 3, it is last in 100 % of the steps, and "
        "rank 3 waits for it; at 2 collectives 50.0 ms a step in the mean for the rank that waits "
        "longest."
    ) in finding.sentence
    assert finding.evidence[0].endswith(
        "it falls behind after blocks.2 all-gather (forward), where these ranks were together last"
    )
    assert finding.evidence[2] == (
        "at blocks.2 all-reduce (backward), of ranks 0, 2, rank 0 waits for it, 50.0 ms a step in "
        "the mean"
    )


def test_replicas_that_wait_for_a_slow_host_name_both_of_its_ranks(tmp_path: Path) -> None:
    """Neither is late to the other; both fell behind since the step before."""
    job = replace(REPLICATED, late_ms={2: 50.0, 3: 50.0}, late_at=GATHER)
    write_sharded_job(job, tmp_path)
    late = facts_of(tmp_path).late
    assert sorted((one.rank, one.members, one.waiting) for one in late) == [
        (2, (0, 2), (0,)), (3, (1, 3), (1,)),
    ]  # fmt: skip
    assert all(one.is_since_step_before and not one.elsewhere for one in late)
    finding = one(found_in(tmp_path), "Rank 2 (")
    assert finding.remedy == (
        "Look at what it computes between <root> all-reduce (backward) of the step before and "
        "blocks.2 all-reduce (backward)."
    )


def test_with_replicas_nobody_is_late_where_none_is(tmp_path: Path) -> None:
    """And waits are known to be none; of an older file neither is."""
    write_sharded_job(REPLICATED, tmp_path)
    facts = facts_of(tmp_path)
    assert (facts.late, facts.wait_unknown, facts.wait_ns) == ((), None, 0.0)
    job = replace(REPLICATED, late_ms={2: 50.0}, late_at=GATHER, tells_members=False)
    write_sharded_job(job, tmp_path / "older")
    facts = facts_of(tmp_path / "older")
    assert facts.late == ()
    assert facts.wait_unknown is not None
    assert "the files do not say which part" in facts.wait_unknown


def test_slow_steps_name_the_rank_they_wait_for(tmp_path: Path) -> None:
    """One that comes 10 s late once."""
    write_sharded(ShardedJob(late_to=(3,), stall_ms=10_000, again=False), tmp_path)
    slow = facts_of(tmp_path).slow
    assert slow is not None
    assert (slow.late_rank, slow.steps, slow.backward_excess_ns) == (1, (20,), 0.0)
    finding = one(found_in(tmp_path), "times the median")
    assert "waiting for rank 1" in finding.sentence
    stalled = one(found_in(tmp_path), "stalled")
    assert any("stage wire of blocks.2 all-gather (forward)" in text for text in stalled.evidence)
    assert any("waited for rank 1, which came to that collective" in t for t in stalled.evidence)


def test_ranks_that_number_units_otherwise_are_not_put_beside_each_other(tmp_path: Path) -> None:
    """What has another unit's number on a rank is left out, and no wait is made up of it."""
    write_sharded(ShardedJob(late_ms={1: 9.0}), tmp_path, unlike={2})
    facts = facts_of(tmp_path)
    assert [b.bucket for b in facts.buckets] == [0, *range(3, 14)]
    assert facts.wait_unknown is not None
    assert "met its units in different orders" in facts.wait_unknown
    assert all(b.wait_ns is None for b in facts.buckets)
    assert all(late.bucket not in (1, 2) for late in facts.late)
    report = report_of(tmp_path)
    assert any("met its units in different orders" in text for text in report.missing)
    assert "blocks.3 all-gather (backward)" in page_of(report)


def test_on_a_device_it_is_not_said_that_none_is_last(tmp_path: Path) -> None:
    """One may be, in each step; the host's calls do not tell."""
    write_sharded(ShardedJob(late_ms={1: 3.0}, on_device=True), tmp_path)
    finding = one(found_in(tmp_path), "Ranks wait for each other")
    assert "no rank is named: on a device the host's calls do not tell" in finding.evidence[-1]
