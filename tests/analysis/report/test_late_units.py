"""Who comes late to units: waits add up over a step, and nobody is named by guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.report.page import page
from tests.analysis.report.jobs import facts_of, found_in, one, report_of
from tests.analysis.report.sharded_jobs import MS, ShardedJob, write_sharded


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
    write_sharded(ShardedJob(late_ms={2: 9.0}, late_at=(3,), again=False), tmp_path)
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
    write_sharded(ShardedJob(late_ms={1: 9.0}, late_at=(0,), again=False), tmp_path)
    finding = one(found_in(tmp_path), "is late")
    assert "before its forward pass" in finding.remedy


def test_what_nobody_waited_for_is_no_margin(tmp_path: Path) -> None:
    """Training waits for a hundredth of each collective, so for no more of the late rank."""
    write_sharded(ShardedJob(late_ms={1: 9.0}, hidden=0.99, again=False), tmp_path)
    assert sum(late.margin_ns for late in facts_of(tmp_path).late) < 10 * 0.2 * MS


@pytest.mark.parametrize(
    "job",
    [
        ShardedJob(late_ms={1: 9.0}, clocks=False),
        ShardedJob(ranks=4, group=2, late_ms={1: 9.0}),
        ShardedJob(ranks=1, late_ms={0: 9.0}),
    ],
    ids=["clocks unknown", "hybrid", "alone"],
)
def test_nobody_is_named_where_it_is_not_known(job: ShardedJob, tmp_path: Path) -> None:
    """Of hybrid sharding a collective has a part of the ranks: the others do not wait."""
    write_sharded(job, tmp_path)
    assert facts_of(tmp_path).late == ()


def test_slow_steps_name_the_rank_they_wait_for(tmp_path: Path) -> None:
    """One that comes 10 s late once."""
    write_sharded(ShardedJob(late_at=(3,), stall_ms=10_000, again=False), tmp_path)
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
    assert "blocks.3 all-gather (backward)" in page(report)
