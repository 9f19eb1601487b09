"""What a step's record says of itself, and that what is unknown stays so."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.records import AnomalyRecord, StepRecord
from tests.exporters.records_sample import full_batch, make_anomaly, make_step

STEP, _ = make_step(1)


def test_rates_of_a_step() -> None:
    """Busy for 3 ms, 2 of them exposed; half of the gradients' bytes were sent."""
    assert STEP.overlap_ratio == pytest.approx(1 / 3)
    assert STEP.compression_ratio == 2.0
    assert STEP.bus_bytes is not None
    assert STEP.wire_in_flight_ns is not None
    assert STEP.busbw_bytes_per_second == STEP.bus_bytes * 1e9 / STEP.wire_in_flight_ns


@pytest.mark.parametrize(
    ("unknown", "rate"),
    [
        ("communication_ns", "overlap_ratio"),
        ("exposed_ns", "overlap_ratio"),
        ("wire_bytes", "compression_ratio"),
        ("bus_bytes", "busbw_bytes_per_second"),
        ("wire_in_flight_ns", "busbw_bytes_per_second"),
    ],
)
def test_of_what_is_unknown_there_is_no_rate(unknown: str, rate: str) -> None:
    assert getattr(replace(STEP, **{unknown: None}), rate) is None


def test_in_a_group_of_one_rank_nothing_crosses_a_bus() -> None:
    assert replace(STEP, bus_bytes=0.0).busbw_bytes_per_second is None


@pytest.mark.parametrize("changes", [{"complete": False}, {"warmup": True}, {"join_dummy": True}])
def test_steps_that_count(changes: dict[str, bool]) -> None:
    """Complete, settled, and this rank's own."""
    assert STEP.counts
    assert not replace(STEP, **changes).counts


def test_a_batch_gives_records_by_their_kind() -> None:
    """In their order; of a kind that is not there none."""
    batch = replace(full_batch(), records=(make_anomaly(1), make_anomaly(2)))
    assert [anomaly.step for anomaly in batch.of(AnomalyRecord)] == [1, 2]
    assert batch.of(StepRecord) == ()
