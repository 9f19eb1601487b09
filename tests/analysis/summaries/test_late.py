"""Who is late, by tables alone; and in which runs nobody is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hooktrace.analysis.summaries import Summary
from hooktrace.analysis.summaries.late import lateness, slow_steps
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.summaries.runs import report_on, summaries_of

pytest.importorskip("datasketches")
JOB = SyntheticJob(ranks=4, steps=40)


@pytest.mark.slow
def test_a_rank_that_falls_behind_in_backward(tmp_path: Path) -> None:
    """It is named with the bucket from which on it is late."""
    job = replace(JOB, late_ms={1: 12.0}, late_from=3)
    (late,) = report_on(job, tmp_path).models[0].facts.late
    assert (late.rank, late.since, late.is_late_from_the_start) == (1, 3, False)
    assert late.lag_ns == pytest.approx(12e6, rel=0.05)
    assert late.margin_ns == pytest.approx(12e6, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [
        JOB,
        replace(JOB, late_ms={1: 12.0}, clocks=False),
        replace(JOB, late_ms={1: 12.0}, late_every=9),
        replace(JOB, ranks=1, late_ms={0: 12.0}),
    ],
    ids=["nobody is late", "clocks unknown", "late too rarely", "one rank"],
)
def test_nobody_is_named(tmp_path: Path, job: SyntheticJob) -> None:
    assert report_on(job, tmp_path).models[0].facts.late == ()


@pytest.mark.slow
def test_ranks_with_other_steps_are_not_compared(tmp_path: Path) -> None:
    """One that stopped early: the means would be of other moments."""
    parts, shared = summaries_of(replace(JOB, late_ms={1: 12.0}), tmp_path / "long")
    short, _ = summaries_of(replace(JOB, late_ms={1: 12.0}, steps=20), tmp_path / "short")
    whole = parts[0].merged(parts[1]).merged(parts[2]).merged(short[3])
    found = lateness(whole.models["synthetic"], shared.origin_ns)
    assert (found.ranks, found.lags) == ((), {})
    assert "not all ranks have the same steps" in found.unknown[0]


@pytest.mark.slow
def test_slow_steps(tmp_path: Path) -> None:
    """Every twentieth has a collective of ten times the length, the last of the long one."""
    job = replace(JOB, slow_every=20, bucket_bytes=(40_000_000,))
    parts, _ = summaries_of(job, tmp_path)
    whole = Summary()
    for part in parts:
        whole = whole.merged(part)
    found = slow_steps(whole.models["synthetic"])
    assert found is not None
    assert set(found.steps) == {1, 21}
    assert found.exposed_excess_ns == pytest.approx(found.excess_ns, rel=0.01)
    calm, _ = summaries_of(JOB, tmp_path / "calm")
    assert slow_steps(calm[0].models["synthetic"]) is None
