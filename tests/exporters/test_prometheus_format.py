"""Totals as prometheus_client shows them."""

from __future__ import annotations

from types import SimpleNamespace

from prometheus_client import generate_latest

from hooktrace.exporters.aggregates import Aggregates
from hooktrace.exporters.observations import Observer
from hooktrace.exporters.prometheus_format import metric_families
from hooktrace.records.metrics import BUCKET_DURATION
from tests.exporters.records_sample import full_batch

DURATION = BUCKET_DURATION.name


def shown(target: dict[str, str], *, bucket_histograms: bool = True) -> dict[str, float]:
    """Return the series of a scrape as they stand there."""
    aggregates = Aggregates()
    aggregates.add(Observer("test").observe(full_batch()))
    totals = aggregates.snapshot()
    families = list(metric_families(totals, target, bucket_histograms=bucket_histograms))
    registry = SimpleNamespace(collect=lambda: families)
    lines = generate_latest(registry).decode().splitlines()  # type: ignore[arg-type]
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def test_labels_of_the_target_stand_on_each_series() -> None:
    """Of all kinds of metrics, with and without labels of their own."""
    found = shown({"rank": "3", "host": "a"})
    assert len(found) > 100
    assert not [name for name in found if 'rank="3"' not in name or 'host="a"' not in name]


def test_durations_of_buckets_without_their_histograms() -> None:
    """Sum and count are the same, the bounds are gone; of no other metric."""
    full, short = shown({}), shown({}, bucket_histograms=False)
    gone = {name for name in full if name.startswith(f"{DURATION}_bucket")}
    assert len(gone) == 2 * (len(BUCKET_DURATION.buckets) + 1)
    assert short == {name: value for name, value in full.items() if name not in gone}
