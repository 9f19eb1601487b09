"""What is said of jobs in which one rank, or one step, keeps the others waiting."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report import rules_ranks
from tests.analysis.report.jobs import (
    HIDDEN,
    MS,
    found,
    found_in,
    gain_ms,
    one,
)
from tests.analysis.timeline.files import Completed, moved, run_of, steps_of, text_of, write_ranks


@pytest.mark.parametrize("since", [0, 4])
def test_a_late_rank(tmp_path: Path, since: int) -> None:
    """The one, its host, the bucket, the gain, and where to look."""
    job = dataclasses.replace(HIDDEN, late_ms={1: 6.0}, late_from=since)
    finding = one(found(job, tmp_path), "Rank 1 (host-0) is late")
    assert gain_ms(finding) == pytest.approx(6, rel=0.1)
    where = "data loading" if since == 0 else "before bucket 4, layers.4.weight"
    assert where in finding.remedy


def test_waiting_is_seen_without_clocks(tmp_path: Path) -> None:
    """By durations alone: no rank is named."""
    job = dataclasses.replace(HIDDEN, late_ms={1: 6.0}, clocks=False)
    all_found = found(job, tmp_path)
    finding = one(all_found, "Ranks wait for each other")
    assert gain_ms(finding) == pytest.approx(6, rel=0.1)
    assert "the ranks' clocks are not known" in finding.evidence[1]
    assert not [f for f in all_found if "is late" in f.sentence]


def test_slow_steps(tmp_path: Path) -> None:
    """One step of 20 takes 100 ms more, outside of communication."""

    def late(host_ns: int) -> int:
        return host_ns + 100 * MS

    steps: list[Completed] = steps_of(20)
    steps[11:] = [moved(step, late) for step in steps[11:]]
    record, buckets = steps[11]
    steps[11] = replace(record, previous_period_ns=110 * MS), buckets
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    finding = one(found_in(tmp_path), "1 of 19 steps takes 1.5 times the median or more")
    assert gain_ms(finding) == pytest.approx(100 / 19)
    assert finding.sentence.endswith("mostly outside of backward and communication.")
    assert finding.evidence[0].endswith("step 10")


def test_shares_of_two_ranks_leave_no_rest() -> None:
    """Medians over ranks may come to more than all of it."""
    assert rules_ranks.rest_of(0.55 + 0.52) == "each at its median rank, so that they overlap"
    assert rules_ranks.rest_of(0.9) == "the rest outside of both"
