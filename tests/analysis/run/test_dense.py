"""A model's settled steps as arrays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report.tables import bucket_table
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import write_job
from tests.analysis.report.jobs import (
    HIDDEN,
    MS,
    QUIET,
    facts_of,
    model_of,
    write_changed,
)
from tests.analysis.run.files import (
    Completed,
    run_of,
    steps_of,
    text_of,
    write_ranks,
)
from tests.analysis.shown import named


def test_a_steps_times_are_those_of_its_records(tmp_path: Path) -> None:
    """A step of the sample: 10 ms, two buckets 1 ms apart of 2 ms each, so 2 ms are exposed."""
    write_ranks(tmp_path, {r: text_of(run_of(r), steps_of(9)) for r in range(2)})
    model = facts_of(tmp_path)
    assert (model.steps, model.clock, model.exposed_share) == (9, "host", 0.2)
    assert model.period is not None
    assert model.exposed is not None
    assert (model.period.p50, model.exposed.p50, model.busy_ns) == (10 * MS, 2 * MS, 3 * MS)
    assert model.overlap == pytest.approx(1 / 3)
    assert (model.gradient_bytes, model.wire_bytes) == (8_000, 4_000)
    first, last = model.buckets
    assert first.stages == {
        "compress": 0.1 * MS, "queue": 0.4 * MS, "wire": 1 * MS, "decompress": 0.5 * MS,
    }  # fmt: skip
    assert (first.ready_ns, last.ready_ns) == (0, 1 * MS)
    assert (first.is_last, last.is_last) == (False, True)
    assert (first.tail_share, last.tail_share) == (0.5, 0.5)  # done 1 and 2 ms after backward
    assert first.busbw_bytes_per_second == pytest.approx(2_000 / 1e-3)


def test_transfer_and_bus_bandwidth_hold_no_waiting(tmp_path: Path) -> None:
    """4 MB at 1 GB/s take 4.2 ms, at 4/3 of them, the bus factor, however long two ranks wait."""
    late = dataclasses.replace(QUIET, late_ms={2: 7.0}, late_from=3)
    quiet, waiting = model_of(QUIET, tmp_path / "early"), model_of(late, tmp_path / "late")
    for model in (quiet, waiting):
        rates = [b.busbw_bytes_per_second for b in model.buckets]
        assert rates == pytest.approx([4e6 * 4 / 3 / 4.2e-3] * len(rates), rel=0.1)
    assert waiting.busbw_bytes_per_second == pytest.approx(quiet.busbw_bytes_per_second, rel=0.03)
    for bucket in waiting.buckets:
        assert bucket.transfer_ns == pytest.approx(4.2 * MS, rel=0.1)
        waits = 7 * MS * 2 / 3 if bucket.bucket >= 3 else 0.0  # a mean: rank 2 waits for nobody
        assert bucket.wait_ns == pytest.approx(waits, abs=0.5 * MS)


def test_where_waits_are_not_known_bus_bandwidth_is_a_least_one(tmp_path: Path) -> None:
    """Of all time on the wire, and it says so."""
    write_job(dataclasses.replace(QUIET, late_ms={2: 7.0}), tmp_path)
    record_path(tmp_path, 2).unlink()
    model = facts_of(tmp_path)
    rates = [b.busbw_bytes_per_second for b in model.buckets]
    assert rates == pytest.approx([4e6 * 4 / 3 / 11.2e-3] * len(rates), rel=0.1)
    table = bucket_table(model)
    assert {row["busbw"][:2] for row in named(table)} == {"≥ "}
    assert "with what it waits" in table.about(range(len(table.columns)))


def test_in_a_run_of_one_rank_there_is_no_bus_bandwidth(tmp_path: Path) -> None:
    """Nothing crosses a bus: 0 MB/s at least would be true of any."""
    model = model_of(dataclasses.replace(QUIET, ranks=1), tmp_path)
    table = bucket_table(model)
    assert model.busbw_bytes_per_second is None
    assert {row["busbw"] for row in named(table)} == {"-"}
    assert "busbw (nccl-tests): none, or not known" in table.about(range(len(table.columns)))


def test_a_rank_that_is_alone_in_a_step_is_after_nobody(tmp_path: Path) -> None:
    """Rank 0 has run out of data after 12 of 30 steps: those without it say nothing of rank 1's."""

    def shadow(rank: int, completed: Completed) -> Completed:
        step, buckets = completed
        if rank or step.step <= 12:
            return completed
        return replace(step, shadow=True), tuple(replace(b, shadow=True) for b in buckets)

    write_changed(tmp_path, dataclasses.replace(HIDDEN, ranks=2, late_ms={1: 6.0}), shadow)
    first, second = facts_of(tmp_path).ranks
    assert (first.steps, second.steps) == (12, 30)
    assert first.lag_ns == 0
    assert second.lag_ns == pytest.approx(6 * MS, rel=0.1)
