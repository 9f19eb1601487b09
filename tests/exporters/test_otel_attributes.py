"""What spans say of a sharded model's units, and that buckets say what they did."""

from __future__ import annotations

from hooktrace.exporters.otel_attributes import of_bucket, of_step
from tests.exporters.records_sample import sharded_batch


def test_a_unit_says_its_name_kind_and_exposed_time() -> None:
    """And nothing of buckets: a gather's bytes are no gradients."""
    step, (call, *_) = sharded_batch().steps[0]
    found = of_bucket(call)
    assert {name: found[f"hooktrace.unit.{name}"] for name in ("name", "collective", "phase")} == {
        "name": "<root>", "collective": "all_gather", "phase": "forward",
    }  # fmt: skip
    assert found["hooktrace.exposed_ns"] == call.exposed_ns
    assert found["hooktrace.payload_bytes"] == call.gradient_bytes
    assert not [name for name in found if "bucket" in name or "gradient" in name]
    assert of_step(step)["hooktrace.exposed_ns"] == step.exposed_ns
    assert of_step(step)["hooktrace.payload_bytes"] == step.gradient_bytes
    assert "hooktrace.gradient_bytes" not in of_step(step)
