"""Which steps stalled, and what is known of whom they waited for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.analysis.report.jobs import HIDDEN, MS, found, found_in, gain_ms, one
from tests.analysis.run.files import run_of, text_of, write_ranks
from tests.exporters.records_sample import make_step


def test_a_stalled_step_names_a_rank_that_came_late(tmp_path: Path) -> None:
    """By its clock: 3 s after all others; of two that did none is blamed alone."""
    job = dataclasses.replace(HIDDEN, late_ms={1: 3000.0}, late_every=25)
    finding = one(found(job, tmp_path), "2 steps stalled, steps 1, 26: up to 3,0")
    assert finding.rank == 1
    assert any("waited for rank 1, whose last bucket was ready" in e for e in finding.evidence)
    assert gain_ms(finding) == pytest.approx(2 * 3000 / 30, rel=0.05)
    both = dataclasses.replace(job, late_ms={1: 3000.0, 2: 2900.0})
    finding = one(found(both, tmp_path / "both"), "2 steps stalled")
    assert finding.rank is None
    assert any("waited for ranks 1, 2, whose last bucket" in e for e in finding.evidence)


def test_a_stall_of_which_nobody_knows_the_cause(tmp_path: Path) -> None:
    """A rank that was stopped after it had launched its buckets looks like those that wait."""
    made = []
    for i in range(12):
        step, buckets = make_step(i)
        wait = 5000 * MS if i == 7 else 0
        exposed = (step.exposed_ns or 0) + wait
        made.append((replace(step, done_ns=step.done_ns + wait, exposed_ns=exposed), buckets))
    write_ranks(tmp_path, {rank: text_of(run_of(rank), made) for rank in range(2)})
    finding = one(found_in(tmp_path), "Step 7 stalled: 5,002 ms of exposed communication, where")
    assert finding.rank is None
    assert any("who held it up" in line for line in finding.evidence)
