"""The metrics table is consistent, and both backends show all of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise

import pytest

from hooktrace.exporters import PrometheusExporter
from hooktrace.records.metrics import (
    ARRIVAL_DELAY,
    COMMUNICATION,
    EXPOSED,
    MAX_BUCKET_LABELS,
    METRICS,
    STEP_PERIOD,
    Metric,
    bucket_label,
)
from tests.exporters.processes import get
from tests.exporters.records_sample import full_batch, sharded_batch

_UNIT_SUFFIX = {"s": "_seconds", "By": "_bytes", "By/s": "_bytes_per_second"}


@pytest.fixture(scope="module")
def exposition() -> str:
    """What a Prometheus sees after one full batch, and one of a sharded model."""
    exporter = PrometheusExporter(port=0)
    try:
        exporter.export(full_batch())
        exporter.export(sharded_batch())
        return get(exporter.url)
    finally:
        exporter.close()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_name_follows_the_conventions(metric: Metric) -> None:
    """A name says its base unit, has no suffix that its kind adds, and ends its help in a stop."""
    assert re.fullmatch(r"hooktrace(_[a-z]+)+", metric.name)
    assert re.fullmatch(r"hooktrace(\.[a-z]+)+", metric.otel_name)
    assert metric.name.endswith(_UNIT_SUFFIX.get(metric.unit, ""))
    assert not metric.name.endswith(("_total", "_info", "_count", "_sum"))
    assert metric.help.endswith(".")
    assert not {"step", "rank"} & set(metric.labels)
    assert (metric.kind == "histogram") == bool(metric.buckets)
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_the_table_as_a_whole() -> None:
    """Unique names; bounds for steps of minutes, as dense as the dashboards say; few buckets."""
    for names in ([m.name for m in METRICS], [m.otel_name for m in METRICS]):
        assert len(set(names)) == len(METRICS)
    for metric in (STEP_PERIOD, EXPOSED, COMMUNICATION, ARRIVAL_DELAY):
        assert metric.buckets[-1] == 500.0
        assert all(high <= 2.5 * low for low, high in pairwise(metric.buckets))
    assert [bucket_label(n) for n in (MAX_BUCKET_LABELS - 1, MAX_BUCKET_LABELS, 10**6)] == [
        *(str(MAX_BUCKET_LABELS - 1), "other", "other")
    ]


def test_promtool_accepts_the_exposition(exposition: str) -> None:
    """Prometheus' own linter finds nothing to say about what a scrape gets."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool; apt-get install prometheus")
    command, text = [promtool, "check", "metrics"], exposition
    checked = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_every_metric_reaches_prometheus(exposition: str) -> None:
    """The exposition has a sample of every metric of the table, and no other family."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE))
    expected = {
        metric.prometheus_name: "gauge" if metric.kind == "info" else metric.kind
        for metric in METRICS
    }
    assert types == expected
