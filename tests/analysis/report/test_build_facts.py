"""Facts are what the records say, and unknown where they say nothing."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.report.jobs import (
    MS,
    facts_of,
    report_of,
)
from tests.analysis.timeline.files import run_of, text_of, write_ranks
from tests.exporters.records_sample import make_step, on_device, opaque, probed


def test_device_times_are_the_devices(tmp_path: Path) -> None:
    """Twice as long as the host's in the sample; what did not resolve is not in any number."""
    steps = [on_device(make_step(i)) for i in range(4)]
    steps.append(on_device(make_step(4), resolved=False))
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    report = report_of(tmp_path)
    model = report.models[0].facts
    assert model.clock == "device"
    assert model.exposed is not None
    assert model.exposed.p50 == 4 * MS
    assert model.buckets[0].duration is not None
    assert model.buckets[0].duration.p50 == 4 * MS
    assert model.buckets[0].stages["wire"] == 2 * MS
    assert "rank 0: buckets on a device that have no times: 2" in report.missing


def test_an_opaque_hook_leaves_unknown_what_it_does_not_tell(tmp_path: Path) -> None:
    """No stages, no bytes: None, and not 0."""
    steps = [opaque(make_step(i), sent=None) for i in range(3)]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    model = facts_of(tmp_path)
    bucket = model.buckets[0]
    assert (model.wire_bytes, model.busbw_bytes_per_second) == (None, None)
    assert (bucket.stages, bucket.transfer_ns, bucket.wait_ns, bucket.wire_bytes) == (
        {}, None, None, None,
    )  # fmt: skip


def test_errors_are_of_their_bucket(tmp_path: Path) -> None:
    """Probes of the sample: a quarter off, with error feedback, one parameter the worst."""
    steps = [probed(make_step(1)), make_step(2), probed(make_step(3))]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    first, second = facts_of(tmp_path).buckets
    assert first.error is not None
    assert (first.error.p50, first.error.count, first.error.worst) == (0.25, 2, "layer0.bias")
    assert first.error.has_feedback
    assert second.error is None
