"""A bucket's record: its stages, its rates."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.exporters import records_sample as sample


def test_times_by_stage() -> None:
    """The sample's: 0.1 ms compress, 0.4 queue, 1 wire, 0.5 decompress."""
    bucket = sample.make_bucket()
    assert (bucket.clock, bucket.duration_ns, bucket.compression_ratio) == ("host", 2_000_000, 2.0)
    assert bucket.stage_totals_ns() == {
        "compress": 100_000, "queue": 400_000, "wire": 1_000_000, "decompress": 500_000,
    }  # fmt: skip
    assert (bucket.stage_ns("wire"), bucket.stage_ns("future_wait")) == (1_000_000, 0)
    assert bucket.busbw_bytes_per_second == (bucket.bus_bytes or 0) * 1e9 / 1_000_000
    assert replace(bucket, bus_bytes=0.0).busbw_bytes_per_second is None  # of one rank alone
    with pytest.raises(
        ValueError, match="no stage is called 'wier'; the stages are check, serialization_wait, co"
    ):
        bucket.stage_ns("wier")


def test_a_device_bucket_that_did_not_resolve_has_no_times() -> None:
    """The host's say when the work was enqueued, and nothing of how long it took."""
    _, (known, _) = sample.on_device(sample.make_step())
    _, (bucket, _) = sample.on_device(sample.make_step(), resolved=False)
    assert (known.clock, known.stage_ns("wire")) == ("device", 2_000_000)
    assert (bucket.clock, bucket.duration_ns, bucket.timed_stages) == ("device", None, ())
    assert bucket.busbw_bytes_per_second is None
