"""What a batch of a sharded model says about the metrics table."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from hooktrace.exporters.model_labels import UnitLabels
from hooktrace.exporters.observations import Observer
from hooktrace.records import Batch, Unit
from hooktrace.records import metrics as m
from hooktrace.testing.synthetic_shards import ShardedJob
from tests.exporters.records_sample import full_batch, sharded_batch

BY_BUCKET = {metric for metric in m.METRICS if "bucket" in metric.labels} | {m.GENERATION}
BY_UNIT = {metric for metric in m.METRICS if "unit" in metric.labels}


def sums(batch: Batch) -> Counter[tuple[m.Metric, tuple[str, ...]]]:
    found: Counter[tuple[m.Metric, tuple[str, ...]]] = Counter()
    for metric, labels, values in Observer("test").observe(batch):
        assert {len(own) for own in labels} <= {len(metric.labels)}
        for own, value in zip(labels, values, strict=True):
            found[metric, own] += value  # type: ignore[assignment]
    return found


def test_series_are_by_unit_or_by_bucket_and_never_both() -> None:
    """A bucket's number says nothing of a unit; DDP's series are as they were."""
    sharded = {metric for metric, _ in sums(sharded_batch())}
    assert sharded >= BY_UNIT
    assert not sharded & BY_BUCKET
    ddp = {metric for metric, _ in sums(full_batch())}
    assert ddp >= BY_BUCKET
    assert not ddp & BY_UNIT


def test_exposed_time_and_bytes_are_by_unit_and_kind() -> None:
    """They add up to the steps'; a gather's bytes are this rank's parameters."""
    batch, job = sharded_batch(steps=3), ShardedJob(steps=3, units=("<root>", "block"))
    found = sums(batch)
    exposed = {own: value for (metric, own), value in found.items() if metric is m.UNIT_EXPOSED}
    assert sum(exposed.values()) == pytest.approx(
        sum(step.exposed_ns or 0 for step, _ in batch.steps) / 1e9
    )
    of = job.model, job.hook, "block"
    assert exposed[*of, "all_gather", "backward"] == pytest.approx(3 * job.gather_ms / 1e3)
    assert found[m.UNIT_PAYLOAD, (*of, "all_gather", "forward")] == 3 * job.bytes / 2
    assert found[m.UNIT_WIRE, (*of, "reduce_scatter", "backward")] == 3 * job.bytes
    assert (
        found[m.UNIT_ERROR, (job.model, job.hook, "<root>", "reduce_scatter", "backward")] == 0.25
    )


def test_what_is_not_known_is_not_counted_as_nothing() -> None:
    """Of a unit whose wait no event tells there is no exposed time, not even a 0."""
    (step, calls), *_ = sharded_batch().steps
    unknown = tuple(replace(call, exposed_ns=None) for call in calls)
    found = sums(replace(sharded_batch(), steps=((replace(step, exposed_ns=None), unknown),)))
    assert not [own for metric, own in found if metric in (m.UNIT_EXPOSED, m.EXPOSED)]


def test_steps_that_do_not_count_give_bytes_but_no_times() -> None:
    (step, calls), *_ = sharded_batch().steps
    found = sums(replace(sharded_batch(), steps=((replace(step, complete=False), calls),)))
    metrics = {metric for metric, _ in found}
    assert not metrics & {m.UNIT_EXPOSED, m.UNIT_DURATION, m.STAGE_DURATION}
    assert found[m.UNIT_PAYLOAD, ("sharded", "fully_shard", "block", "all_gather", "forward")]


def test_bytes_on_the_wire_are_not_the_payload() -> None:
    """Of a hook that compresses they are fewer."""
    (step, calls), *_ = sharded_batch().steps
    halved = tuple(replace(call, wire_bytes=call.gradient_bytes // 2) for call in calls)
    found = sums(replace(sharded_batch(), steps=((step, halved),)))
    payload = {own: value for (metric, own), value in found.items() if metric is m.UNIT_PAYLOAD}
    wire = {own: 2 * value for (metric, own), value in found.items() if metric is m.UNIT_WIRE}
    assert wire == payload


@pytest.mark.parametrize("batch", [full_batch(), sharded_batch()])
def test_shadow_calls_give_no_error_and_failed_ones_no_times(batch: Batch) -> None:
    """Of buckets and of units alike."""
    errors = {m.COMPRESSION_ERROR, m.BUCKET_ERROR, m.BUCKET_COSINE, m.UNIT_ERROR, m.UNIT_COSINE}
    times = {m.BUCKET_DURATION, m.UNIT_DURATION, m.UNIT_EXPOSED}
    for metrics, changes in ((errors, {"shadow": True}), (times, {"exception": "OSError: x"})):
        changed = tuple(
            (step, tuple(replace(call, **changes) for call in calls)) for step, calls in batch.steps
        )
        assert metrics & {metric for metric, _ in sums(batch)}
        assert not metrics & {metric for metric, _ in sums(replace(batch, steps=changed))}


def test_labels_are_bounded_by_units_and_models() -> None:
    """Micro-steps make no series of their own; units beyond the limit share one."""
    labels, model = UnitLabels(), ("net", "hook")
    units = [
        Unit(name=f"layers.{i}", collective="all_gather", phase="forward", turn=turn)
        for i in range(m.MAX_UNITS + 5)
        for turn in range(3)
    ]
    found = {labels.of(model, unit) for unit in units}
    assert len(found) == m.MAX_UNITS + 1
    assert (*model, "other", "all_gather", "forward") in found
    assert labels.of(model, units[0])[2] == "layers.0"
    for i in range(m.MAX_MODELS):
        labels.of((f"model {i}", "hook"), units[0])
    assert labels.of(("one more", "hook"), units[0])[2] == "other"
