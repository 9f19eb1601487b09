"""The Prometheus exporter, scraped over HTTP and by a real Prometheus."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hooktrace.exporters.aggregates import Aggregates
from hooktrace.exporters.prometheus_format import metric_families
from hooktrace.records.metrics import BUCKET_DURATION, TARGET_LABELS
from tests.exporters.conftest import Make
from tests.exporters.processes import get, prometheus, until
from tests.exporters.records_sample import HOOK, MODEL, full_batch, make_batch, make_run
from tests.exporters.test_observations import flat
from tests.ports import free_port

NET = (("hook", HOOK), ("model", MODEL))


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the value of every sample by name and sorted labels, without those of the target."""
    return {
        (
            sample.name,
            tuple(sorted((k, v) for k, v in sample.labels.items() if k not in TARGET_LABELS)),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_scrape_has_the_exact_totals(make: Make) -> None:
    """Two batches add up: counters, histogram buckets, gauges and totals that are set."""
    exporter = make()
    exporter.export(make_batch(steps=3))
    exporter.export(full_batch())
    found = samples(get(exporter.url))
    assert found["hooktrace_steps_total", NET] == 8
    assert found["hooktrace_exposed_seconds_count", NET] == 5
    assert found["hooktrace_exposed_seconds_sum", NET] == pytest.approx(5 * 0.002)
    for bound, count in {"0.001": 0, "0.0025": 5, "+Inf": 5}.items():
        assert found["hooktrace_exposed_seconds_bucket", (NET[0], ("le", bound), NET[1])] == count
    assert found["hooktrace_gradient_bytes_total", (("bucket", "0"), *NET)] == 8 * 4000
    busy = found["hooktrace_wire_seconds_total", NET]
    assert found["hooktrace_bus_bytes_total", NET] / busy == pytest.approx(4000 / 0.002)
    assert found["hooktrace_records_lost_total", (("reason", "ring_full"),)] == 3


def test_durations_of_buckets_without_their_histograms() -> None:
    """Sum and count are the same, the bounds are gone; of no other metric."""
    aggregates, shown = Aggregates(), []
    aggregates.add(flat(full_batch()))
    for with_them in (True, False):
        families = list(metric_families(aggregates.snapshot(), {}, bucket_histograms=with_them))
        registry: Any = SimpleNamespace(collect=lambda f=families: f)
        shown.append(samples(generate_latest(registry).decode()))
    full, short = shown
    gone = {key for key in full if key[0] == f"{BUCKET_DURATION.name}_bucket"}
    assert len(gone) == 2 * (len(BUCKET_DURATION.buckets) + 1)
    assert short == {key: value for key, value in full.items() if key not in gone}


def test_binds_port_plus_local_rank_on_loopback(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``LOCAL_RANK`` moves the port; a port of 0 is left to the system."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    port = free_port()
    exporter = make(port=port - 1)
    assert (exporter.port, exporter.url) == (port, f"http://127.0.0.1:{port}/metrics")
    assert make(port=0).port > 0
    monkeypatch.setenv("LOCAL_RANK", "first")
    with pytest.raises(ValueError, match=r"LOCAL_RANK is 'first'.*pass local_rank=0"):
        make(port=9464)


def values(series: list[dict[str, Any]], label: str) -> dict[str, str]:
    return {one["metric"][label]: one["value"][1] for one in series}


@pytest.mark.slow
def test_prometheus_knows_the_ranks_that_it_finds_and_is_told(make: Make, tmp_path: Path) -> None:
    """Two by files, two by series as with a PodMonitor; a restarted job goes on with its own."""
    told = [make(), make()]
    found_by_file = [make(file_sd=tmp_path / "targets") for _ in range(2)]
    for rank, exporter in enumerate([*found_by_file, *told]):
        exporter.export(make_batch(steps=3 + rank, run=make_run(rank, 4)))
    ports = [{"targets": [f"127.0.0.1:{exporter.port}" for exporter in told]}]
    log = tmp_path / "prometheus.log"
    with prometheus(tmp_path, static_configs=ports) as query:
        found = until(
            lambda: query("sum by (rank, local_rank, host) (hooktrace_steps_total)"),
            lambda found: len(found) == 4,
            log,
        )
        counts = {str(rank): str(3 + rank) for rank in range(4)}
        assert values(found, "rank") == values(found, "local_rank") == counts
        assert {one["metric"]["host"] for one in found} == {"host-a"}
        (run,) = query('hooktrace_run_info{rank="0"}')
        assert run["metric"].keys() >= {"run_id", "world_size", "backend", "torch_version"}
        everything = query('{__name__=~"hooktrace_.+"}')
        assert not [x for one in everything for x in one["metric"] if x.startswith("exported_")]
        found_by_file[0].close()
        again = make(port=found_by_file[0].port, local_rank=0, file_sd=tmp_path / "targets")
        again.export(make_batch(steps=1, run=make_run(0, 4, run_id="another")))
        until(lambda: query("resets(hooktrace_steps_total[5m]) > 0"), bool, log)
        assert len(query('count_over_time(hooktrace_steps_total{rank="0"}[5m])')) == 1
