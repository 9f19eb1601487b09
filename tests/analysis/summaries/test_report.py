"""The report of summaries beside the one that has all ranks side by side."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pytest

from hooktrace.analysis.report import RunReport
from hooktrace.analysis.summaries import Summary, report_of
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.report.jobs import report_of as full_report
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.summaries.runs import read, report_on, summaries_of

pytest.importorskip("datasketches")
JOB = SyntheticJob(
    ranks=4, steps=120, late_ms={2: 15.0}, error=0.02, slow_every=37,
    bucket_bytes=(4_000_000,) * 5 + (400_000, 20_000_000),
)  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunReport, RunReport]:
    folder = tmp_path_factory.mktemp("run")
    mine = report_on(JOB, folder)
    return mine, full_report(folder)


def test_the_same_findings(both: tuple[RunReport, RunReport]) -> None:
    """With the same rules, ranks and buckets, and gains that are near."""
    mine, full = (report.models[0].findings for report in both)
    told = [(one.rule, one.rank, one.bucket) for one in mine]
    assert told == [(one.rule, one.rank, one.bucket) for one in full]
    assert ("ranks_wait", 2, 0) in told
    for one, other in zip(mine, full, strict=True):
        assert one.gain_ns == pytest.approx(other.gain_ns, rel=0.05), one.rule


def test_the_same_numbers(both: tuple[RunReport, RunReport]) -> None:
    """Of the model, of each bucket and of each rank; a rank's own are exact."""
    mine, full = (report.models[0].facts for report in both)
    for field in ("busy_ns", "wire_bytes", "overlap", "steps", "probed", "gradient_bytes"):
        assert getattr(mine, field) == pytest.approx(getattr(full, field), rel=0.01), field
    for one, other in zip(mine.buckets, full.buckets, strict=True):
        for field in ("ready_ns", "transfer_ns", "wait_ns", "call_ns", "busbw_bytes_per_second"):
            assert getattr(one, field) == pytest.approx(getattr(other, field), rel=0.03), field
        assert (one.waits_for, one.largest, one.is_last) == (
            other.waits_for, other.largest, other.is_last,
        )  # fmt: skip
    for mine_of, other_of in zip(mine.ranks, full.ranks, strict=True):
        assert mine_of.period_ns == other_of.period_ns
        assert mine_of.exposed_ns == other_of.exposed_ns
        assert mine_of.lag_ns == pytest.approx(other_of.lag_ns, abs=1e5)


def test_it_says_what_it_does_not_know(both: tuple[RunReport, RunReport]) -> None:
    mine, _ = both
    assert "percentiles over all ranks are of sketches" in mine.missing[-2]
    assert mine.missing[-1].startswith("not known from summaries: which stage and rank held up")
    (late,) = [one for one in mine.models[0].findings if one.rank == 2]
    assert "behind the mean of the others" in " ".join(late.evidence)


@pytest.mark.slow
def test_a_rank_without_a_file(tmp_path: Path) -> None:
    """Nobody knows whom the others waited for."""
    summaries_of(JOB, tmp_path)
    record_path(tmp_path, 3).unlink()
    parts, shared = read(JOB, tmp_path)
    report = report_of(reduce(Summary.merged, parts), shared)
    assert report.missing[0].startswith("rank 3: no record file")
    facts = report.models[0].facts
    assert (facts.is_whole, facts.wait_unknown) == (
        False, "3 of 4 ranks have steps here, and the last one may be among the others",
    )  # fmt: skip
    assert {bucket.wait_ns for bucket in facts.buckets} == {None}


def test_an_anomaly_of_any_rank(tmp_path: Path) -> None:
    report = report_on(SyntheticJob(ranks=3, steps=12, anomaly_rank=2), tmp_path)
    (wrong,) = [one for one in report.models[0].findings if one.is_wrong]
    assert (wrong.rule, wrong.rank) == ("nonfinite_gradient", 2)


def both_of_shards(job: ShardedJob, folder: Path) -> tuple[RunReport, RunReport]:
    """Return the report of summaries of a sharded job, and the one of all ranks side by side."""
    write_sharded(job, folder)
    parts, shared = read(job.base, folder)
    return report_of(reduce(Summary.merged, parts), shared), full_report(folder)


def test_units_are_what_they_are_side_by_side(tmp_path: Path) -> None:
    """Kinds, units and what they expose; nothing is said by DDP's rules."""
    mine, full = both_of_shards(ShardedJob(steps=60, slow={"blocks.2": 3.0}), tmp_path)
    one, other = mine.models[0].facts, full.models[0].facts
    assert one.is_sharded
    assert one.is_synchronous
    assert one.whole_bytes == other.whole_bytes
    for ours, theirs in zip(one.kinds, other.kinds, strict=True):
        assert (ours.name, ours.count, ours.payload_bytes, ours.wait_ns) == (
            theirs.name, theirs.count, theirs.payload_bytes, None,
        )  # fmt: skip
        assert ours.exposed_ns == pytest.approx(theirs.exposed_ns, rel=0.02)
    for ours, theirs in zip(one.buckets, other.buckets, strict=True):
        assert (ours.unit, ours.title) == (theirs.unit, theirs.title)
        assert ours.exposed is not None
        assert theirs.exposed is not None
        assert ours.exposed.p50 == pytest.approx(theirs.exposed.p50, rel=0.02)
    told = {finding.rule for finding in mine.models[0].findings}
    assert told == {finding.rule for finding in full.models[0].findings}
    assert "units_are_exposed" in told


def test_nobody_is_late_to_units_in_summaries(tmp_path: Path) -> None:
    """It is said that this is not known, rather than what one bucket would tell."""
    mine, full = both_of_shards(ShardedJob(steps=60, late_ms={1: 5.0}), tmp_path)
    assert [late.rank for late in full.models[0].facts.late] == [1]
    assert mine.models[0].facts.late == ()
    assert any("who comes late to its units is not known" in text for text in mine.missing)
    assert any("do not take units yet" in text for text in mine.missing)


def test_of_hybrid_sharding_no_wait_is_known_in_summaries(tmp_path: Path) -> None:
    """The shortest time in a collective may be of another group's."""
    mine, _ = both_of_shards(ShardedJob(ranks=4, group=2, late_ms={1: 5.0}), tmp_path)
    facts = mine.models[0].facts
    assert facts.wait_unknown is not None
    assert all(b.wait_ns is None and b.transfer_ns is None for b in facts.buckets)


def test_numbers_that_are_other_units_elsewhere_are_left_out(tmp_path: Path) -> None:
    """Summaries of two ranks that number two units otherwise have the others."""
    job = ShardedJob(ranks=2, steps=40)
    write_sharded(job, tmp_path, unlike={1})
    parts, shared = read(job.base, tmp_path)
    facts = report_of(reduce(Summary.merged, parts), shared).models[0].facts
    assert [b.bucket for b in facts.buckets] == [0, *range(3, 14)]
    assert facts.wait_unknown is not None


def test_steps_of_several_kinds_are_what_they_are_side_by_side(tmp_path: Path) -> None:
    """A rank's last generation is none of the other ranks' business; nothing is left out."""
    mine, full = both_of_shards(ShardedJob(odd=(22,)), tmp_path)
    one, other = mine.models[0].facts, full.models[0].facts
    assert one.steps == other.steps == 30
    for ours, theirs in zip(one.kinds, other.kinds, strict=True):
        assert (ours.count, ours.payload_bytes) == (theirs.count, theirs.payload_bytes)
    assert [b.share_of_steps for b in one.buckets] == [b.share_of_steps for b in other.buckets]


def test_steps_that_hung_are_not_among_the_numbers(tmp_path: Path) -> None:
    """And it says so; the full report leaves them out too."""
    job = SyntheticJob(steps=20)
    write_hung_job(job, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    parts, shared = read(job, tmp_path)
    mine, full = report_of(reduce(Summary.merged, parts), shared), full_report(tmp_path)
    (facts,), (other,) = ([one.facts for one in report.models] for report in (mine, full))
    assert facts.steps == other.steps == 19
    assert facts.period is not None
    assert facts.period.p95 < 1e9
    assert any("steps that hung are not among the numbers" in text for text in mine.missing)
