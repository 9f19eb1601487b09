"""The OpenTelemetry exporter at work: a real OTLP receiver, and ones that are down."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import TracerProvider

from hooktrace.exporters import OpenTelemetryExporter
from hooktrace.exporters.otel_spans import StepIds
from tests.exporters.processes import get_json, running, until
from tests.exporters.records_sample import MODEL, WALL_ANCHOR_NS, make_batch
from tests.ports import free_port

MS = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
def test_close_is_bounded_when_the_backend_is_down(
    protocol: str, silent: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A port that refuses or never answers delays ``close`` no longer than its deadline."""
    with socket.socket() as backend:
        backend.bind(("127.0.0.1", 0))
        if silent:
            backend.listen()
        endpoint = f"http://127.0.0.1:{backend.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        exporter = OpenTelemetryExporter(close_seconds=0.5)
        exporter.export(make_batch(steps=1))
        # Without the deadline the SDK's own 10 to 30 s would pass.
        waits_s: list[float | None] = []
        join = threading.Thread.join

        def joined(thread: threading.Thread, timeout: float | None = None) -> None:
            if thread.name == "hooktrace-otel-close":
                waits_s.append(timeout)
            join(thread, timeout)

        monkeypatch.setattr(threading.Thread, "join", joined)
        exporter.close()
        assert waits_s
        assert all(wait_s is not None and wait_s <= 0.5 for wait_s in waits_s)
    assert exporter.lost == {"spans": 11, "metric_exports": 1}
    assert sum("spans were lost" in record.getMessage() for record in caplog.records) == 1


def test_close_does_not_wait_for_the_applications_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush of the application's provider that hangs is left behind at the deadline."""
    release, provider = threading.Event(), TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(provider, "force_flush", lambda timeout_millis: release.wait())
    exporter = OpenTelemetryExporter(tracer_provider=provider, metrics=False, close_seconds=0.2)
    exporter.export(make_batch(steps=1))
    exporter.close()
    release.set()


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int, Path]]:
    """A real OTLP receiver: its HTTP port, its gRPC port and its log."""
    agent = os.environ.get("HOOKTRACE_TEST_OTLP_AGENT") or shutil.which("ddapm-test-agent")
    if agent is None:
        pytest.skip(
            "no OTLP receiver; pip install ddapm-test-agent into a venv of its own and set "
            "HOOKTRACE_TEST_OTLP_AGENT to its bin/ddapm-test-agent"
        )
    log = tmp_path_factory.mktemp("receiver") / "agent.log"
    http, grpc = free_port(), free_port()
    command = [agent, "-p", str(free_port()), "--otlp-http-port", str(http)]
    with running([*command, "--otlp-grpc-port", str(grpc)], log):
        traces = f"http://127.0.0.1:{http}/test/session/traces"
        until(lambda: get_json(traces), lambda found: isinstance(found, list), log)
        yield http, grpc, log


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_receiver_gets_one_trace_of_two_ranks(
    receiver: tuple[int, int, Path], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real receiver reads back one trace, rank 1 below rank 0, and the metrics of both."""
    http, grpc, log = receiver
    port = http if protocol == "http/protobuf" else grpc
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    run_id = f"run-{protocol}"
    for rank in (0, 1):
        exporter = OpenTelemetryExporter(close_seconds=60)  # the receiver may be slow
        batch = make_batch(rank, steps=3, first_step=5)
        exporter.export(replace(batch, run=replace(batch.run, run_id=run_id)))
        exporter.close()
        assert exporter.lost == {}

    def received(what: str, key: str) -> list[Any]:
        url = f"http://127.0.0.1:{http}/test/session/{what}"
        entries = [entry for request in get_json(url) for entry in request[f"resource_{key}"]]
        return [entry for entry in entries if resource(entry)["hooktrace.run_id"] == run_id]

    both = until(lambda: received("traces", "spans"), lambda found: len(found) == 2, log)
    steps = {resource(e)["hooktrace.rank"]: step_spans(e) for e in both}
    ids = [StepIds.of(run_id, MODEL, step) for step in (5, 6, 7)]
    root_ids = [hex_id(i.root_span_id, 8) for i in ids]
    assert [s["trace_id"] for s in steps["0"]] == [hex_id(i.trace_id, 16) for i in ids]
    assert [s["trace_id"] for s in steps["1"]] == [hex_id(i.trace_id, 16) for i in ids]
    assert [s["span_id"] for s in steps["0"]] == root_ids
    assert [s.get("parent_span_id", "") for s in steps["0"]] == [""] * 3
    assert [s["parent_span_id"] for s in steps["1"]] == root_ids
    assert steps["1"][0]["start_time_unix_nano"] == str(WALL_ANCHOR_NS + 50 * MS)
    metrics = until(lambda: received("metrics", "metrics"), lambda found: len(found) == 2, log)
    assert [counter_value(entry, "hooktrace.steps") for entry in metrics] == [3, 3]


def hex_id(number: int, length: int) -> str:
    return base64.b64encode(number.to_bytes(length)).decode()


def resource(entry: dict[str, Any]) -> dict[str, str]:
    pairs = entry["resource"]["attributes"]
    return {pair["key"]: next(iter(pair["value"].values())) for pair in pairs}


def step_spans(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a received resource's step spans in order of time."""
    spans = [span for scope in entry["scope_spans"] for span in scope["spans"]]
    assert len(spans) == 3 * 11
    steps = [span for span in spans if span["name"] == "ddp step"]
    return sorted(steps, key=lambda span: int(span["start_time_unix_nano"]))


def counter_value(entry: dict[str, Any], name: str) -> int:
    metrics = [metric for scope in entry["scope_metrics"] for metric in scope["metrics"]]
    [point] = next(m for m in metrics if m["name"] == name)["sum"]["data_points"]
    return int(point.get("as_int", point.get("as_double")))
