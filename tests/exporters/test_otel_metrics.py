"""Metrics for OpenTelemetry: whole data for a reader, instruments in the application's provider."""

from __future__ import annotations

import os
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from hooktrace.exporters import otel_metrics
from hooktrace.exporters.otel_metrics import ReaderTotals, instruments_of
from hooktrace.records.metrics import METRICS
from tests.exporters.records_sample import HOOK, MODEL, full_batch, make_batch, sharded_batch
from tests.exporters.test_observations import flat

NET = (HOOK, MODEL)
DELTA = AggregationTemporality.DELTA


def own(reader: InMemoryMetricReader) -> ReaderTotals:
    """Return the totals that the reader gets."""
    return ReaderTotals(reader, Resource.create({"hooktrace.rank": 1}), "1.0")


def metrics_of(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    assert data is not None
    return {m.name: m for m in data.resource_metrics[0].scope_metrics[0].metrics}


def point(found: dict[str, Any], name: str, *values: str) -> Any:
    """Return the only point of a metric with these attribute values, in order of their keys."""
    [one] = [
        p
        for p in found[name].data.data_points
        if tuple(v for k, v in sorted(p.attributes.items()) if k != "hooktrace.rank") == values
    ]
    return one


def test_a_reader_gets_what_an_sdk_would_have_made() -> None:
    """Every name, unit, help, kind, attribute, count, bound, sum and extreme is the SDK's own."""
    mine, theirs = InMemoryMetricReader(), InMemoryMetricReader()
    aggregates = own(mine)
    observed = instruments_of(MeterProvider([theirs]), "1.0", rank=0)
    for batch in (make_batch(steps=3), full_batch(), sharded_batch()):
        aggregates.add(flat(batch))
        observed.add(flat(batch), None)
    ours, sdks = metrics_of(mine), metrics_of(theirs)
    assert {(m.name, m.unit, m.description) for m in ours.values()} == {
        (m.otel_name, m.unit, m.help) for m in METRICS
    }
    assert {name: _without_times(metric) for name, metric in ours.items()} == {
        name: _without_times(metric) for name, metric in sdks.items()
    }


def _without_times(metric: Any) -> tuple[Any, ...]:
    points = []
    for p in metric.data.data_points:
        labels = {k: v for k, v in p.attributes.items() if k != "hooktrace.rank"}
        numbers = (
            [p.value]
            if hasattr(p, "value")
            else [p.count, p.sum, p.min, p.max, *p.bucket_counts, *p.explicit_bounds]
        )
        points.append((sorted(labels.items()), [round(number, 12) for number in numbers]))
    data = metric.data
    kind = (type(data).__name__, getattr(data, "is_monotonic", None))
    temporality = getattr(data, "aggregation_temporality", None)
    return metric.description, metric.unit, kind, temporality, sorted(points)


def test_totals_grow_and_increases_begin_anew() -> None:
    """Increases, where a reader wants them, are of what was added to; gauges stay as they are."""
    wanted = {Counter: DELTA, Histogram: DELTA}
    for reader in (InMemoryMetricReader(), InMemoryMetricReader(preferred_temporality=wanted)):
        aggregates, seen = own(reader), list[dict[str, Any]]()
        for steps in (2, 3):
            aggregates.add(flat(make_batch(steps=steps)))
            seen.append(metrics_of(reader))
        first, second = [point(found, "hooktrace.steps", *NET) for found in seen]
        if seen[1]["hooktrace.steps"].data.aggregation_temporality is not DELTA:
            assert (first.value, second.value) == (2, 5)
            assert first.start_time_unix_nano == second.start_time_unix_nano
            assert first.time_unix_nano <= second.time_unix_nano
    assert (first.value, second.value) == (2, 3)
    assert first.time_unix_nano == second.start_time_unix_nano
    exposed = point(seen[1], "hooktrace.exposed", *NET)
    assert (exposed.count, sum(exposed.bucket_counts), exposed.min) == (3, 3, 0.002)
    assert exposed.sum == pytest.approx(3 * 0.002)
    assert "hooktrace.steps" not in (nothing_new := metrics_of(reader))
    assert "hooktrace.compression.ratio" in nothing_new


def test_exporters_share_a_provider_and_a_forked_child_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two tracers of one process are added up; a child's readers would repeat its parent's."""
    mine, theirs = InMemoryMetricReader(), InMemoryMetricReader()
    provider = MeterProvider([theirs])
    for lost in (3, 4):
        batch = replace(make_batch(steps=2), losses={"ring_full": lost})
        instruments_of(provider, "1.0", rank=0).add(flat(batch), lost)
    found = metrics_of(theirs)
    assert point(found, "hooktrace.steps", *NET).value == 4
    assert point(found, "hooktrace.records.lost", "ring_full").value == 7
    assert point(found, "hooktrace.exposed", *NET).count == 4
    own(mine).add(flat(make_batch()))
    pid = os.getpid()
    monkeypatch.setattr(otel_metrics.os, "getpid", lambda: pid + 1)
    assert mine.get_metrics_data() is None
    assert "hooktrace.steps" not in metrics_of(theirs)
