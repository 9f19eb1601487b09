"""The Prometheus exporter, scraped over HTTP and by a real Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hooktrace.records.metrics import TARGET_LABELS
from tests.exporters.conftest import Make
from tests.exporters.processes import get, prometheus, until
from tests.exporters.records_sample import (
    HOOK,
    MODEL,
    full_batch,
    make_anomaly,
    make_batch,
    make_layout,
    make_run,
    make_step,
)
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
    assert found["hooktrace_exposed_seconds_bucket", (NET[0], ("le", "0.001"), NET[1])] == 0
    assert found["hooktrace_exposed_seconds_bucket", (NET[0], ("le", "0.0025"), NET[1])] == 5
    assert found["hooktrace_exposed_seconds_bucket", (NET[0], ("le", "+Inf"), NET[1])] == 5
    assert found["hooktrace_gradient_bytes_total", (("bucket", "0"), *NET)] == 8 * 4000
    busy = found["hooktrace_wire_seconds_total", NET]
    assert found["hooktrace_bus_bytes_total", NET] / busy == pytest.approx(4000 / 0.002)
    assert found["hooktrace_records_lost_total", (("reason", "ring_full"),)] == 3


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
    """Two by their files, two as with a PodMonitor, by series that say it; nothing clashes."""
    told = [make(), make()]
    found_by_file = [make(file_sd=tmp_path / "targets") for _ in range(2)]
    for rank, exporter in enumerate([*found_by_file, *told]):
        exporter.export(make_batch(steps=3 + rank, run=make_run(rank, 4)))
    ports = [{"targets": [f"127.0.0.1:{exporter.port}" for exporter in told]}]
    with prometheus(tmp_path, static_configs=ports) as query:
        found = until(
            lambda: query("sum by (rank, local_rank, host) (hooktrace_steps_total)"),
            lambda found: len(found) == 4,
            tmp_path / "prometheus.log",
        )
        counts = {str(rank): str(3 + rank) for rank in range(4)}
        assert values(found, "rank") == values(found, "local_rank") == counts
        assert {one["metric"]["host"] for one in found} == {"host-a"}
        (run,) = query('hooktrace_run_info{rank="0"}')
        assert run["metric"].keys() >= {"run_id", "world_size", "backend", "torch_version"}
        everything = query('{__name__=~"hooktrace_.+"}')
        assert not [x for one in everything for x in one["metric"] if x.startswith("exported_")]


@pytest.mark.slow
def test_prometheus_sees_the_first_event_and_a_restart(make: Make, tmp_path: Path) -> None:
    """A counter is there before its first event, and a restarted job goes on with its series."""
    first = make(file_sd=tmp_path / "targets")
    first.export(replace(make_batch(), records=(make_layout(),), failures={"prometheus": 0}))
    log = tmp_path / "prometheus.log"
    counters = (
        'hooktrace_anomalies_total{kind="nonfinite_result"}',
        'hooktrace_records_lost_total{reason="late"}',
        'hooktrace_exporter_failures_total{exporter="prometheus"}',
        "hooktrace_incomplete_steps_total",
    )
    with prometheus(tmp_path) as query:
        for counter in counters:
            found = until(lambda c=counter: query(c), bool, log)  # type: ignore[misc]
            assert [one["value"][1] for one in found] == ["0"], counter
        step, buckets = make_step(9)
        first.export(
            replace(
                make_batch(steps=0),
                steps=((replace(step, complete=False), buckets),),
                records=(make_anomaly(kind="nonfinite_result"),),
                losses={"late": 1},
                failures={"prometheus": 1},
            )
        )
        for counter in counters:
            grown = f"increase({counter}[1m]) > 0"
            assert until(lambda q=grown: query(q), bool, log)  # type: ignore[misc]
        first.close()
        second = make(port=first.port, local_rank=0, file_sd=tmp_path / "targets")
        second.export(replace(make_batch(steps=1), run=make_run(run_id="another")))
        restarted = "resets(hooktrace_steps_total[5m]) > 0"
        found = until(lambda: query(restarted), bool, log)
        assert len(query("count_over_time(hooktrace_steps_total[5m])")) == len(found) == 1
        runs = query("count_over_time(hooktrace_run_info[5m])")
        assert {one["metric"]["run_id"] for one in runs} == {"sample", "another"}
