"""Critical paths in words: who and what, the largest first, and nobody whom clocks do not tell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hooktrace.analysis.run import UNKNOWN, critical_path_sums
from hooktrace.analysis.run.path_sums import parts
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.run.files import drop
from tests.analysis.runs import job_run, run_in

MS = 1_000_000
NS = Counter(
    {
        ("compute", 2, 5): 100 * MS, ("compute", 2, 4): 22 * MS, ("transfer", UNKNOWN, 3): 20 * MS,
        ("transfer", UNKNOWN, 4): 12 * MS, ("transfer", UNKNOWN, 5): 12 * MS,
        ("transfer", UNKNOWN, 9): MS, ("compute", UNKNOWN, 5): 25 * MS,
        ("decompress", 1, 5): 5 * MS, ("queue", 2, 3): 3 * MS,
    }
)  # fmt: skip
"""Of two steps of 100 ms."""


def test_parts_are_by_kind_and_by_rank_where_that_matters() -> None:
    assert [(part.text, part.ns // MS) for part in parts(NS)] == [
        ("compute of rank 2", 122), ("transfer of buckets 3-5", 45),
        ("compute of a rank that clocks do not tell apart", 25),
        ("decompress of bucket 5, rank 1", 5), ("queue of bucket 3", 3),
    ]  # fmt: skip


def test_compute_in_which_another_model_has_its_turn_is_said_to_hold_it() -> None:
    first, second, *_ = parts(NS, beside=("critic",))
    assert (first.text, second.text) == (
        "compute of rank 2 and all of critic", "transfer of buckets 3-5"
    )  # fmt: skip


def test_a_step_that_hung_or_stalled_is_no_usual_one(tmp_path: Path) -> None:
    """Forty seconds in one of thirty steps would be nearly all of an average step."""
    job = SyntheticJob(ranks=2, steps=30)
    write_job(job, tmp_path / "usual")
    write_hung_job(job, SyntheticHang(step=12, rank=1, went_on_after_s=40), tmp_path / "hung")
    usual, hung = (
        critical_path_sums(run_in(tmp_path / name), "synthetic") for name in ("usual", "hung")
    )
    assert (usual.of, hung.of) == (30, 28)  # without the late rank's step before
    assert hung.length_ns / 28 == pytest.approx(usual.length_ns / 30, rel=0.02)
    drop(tmp_path / "hung", range(2), '"kind":"hang"')
    stalled = critical_path_sums(run_in(tmp_path / "hung"), "synthetic")
    assert stalled.of == 29
    assert stalled.length_ns / 29 == pytest.approx(usual.length_ns / 30, rel=0.02)


def test_a_sample_does_not_keep_time_with_the_job(tmp_path: Path) -> None:
    """Rank 1 is late in every other step: in half of a sample of half of the steps, or so."""
    found = critical_path_sums(
        job_run(SyntheticJob(ranks=2, steps=80, late_ms={1: 12.0}, late_every=2), tmp_path),
        "synthetic",
        most=40,
    )
    compute = {rank: 0 for kind, rank, _ in found.ns if kind == "compute"}
    for (kind, rank, _), ns in found.ns.items():
        if kind == "compute":
            compute[rank] += ns
    assert 0.3 < compute[1] / sum(compute.values()) < 0.9
    assert found.steps == 40
