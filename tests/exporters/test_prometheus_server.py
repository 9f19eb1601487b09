"""How Prometheus reaches a rank: addresses, ports, TLS, and the file by which it finds it."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request
from pathlib import Path

import pytest

from hooktrace.exporters import PrometheusExporter
from tests.exporters.conftest import Make
from tests.exporters.processes import get
from tests.exporters.records_sample import make_batch
from tests.exporters.test_prometheus import NET, samples


def test_bad_addresses_end_in_their_remedy() -> None:
    """An address of another host and a port out of range are explained."""
    with pytest.raises(OSError, match=r"such as addr='127\.0\.0\.1'"):
        PrometheusExporter(port=0, addr="192.0.2.1")
    with pytest.raises(OSError, match="at most 65535; pass a lower port, or port=0"):
        PrometheusExporter(port=65535, local_rank=3)


def test_tls_serves_past_a_silent_client(make: Make, certificate: tuple[Path, Path]) -> None:
    """Over HTTPS a client that never says hello stops neither the next scrape nor ``close``."""
    cert, key = certificate
    exporter = make(certfile=cert, keyfile=key)
    exporter.export(make_batch())
    assert exporter.url == f"https://127.0.0.1:{exporter.port}/metrics"
    context = ssl.create_default_context(cafile=str(cert))
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=60):
        with opener.open(exporter.url, timeout=60) as response:
            text = response.read().decode()
        exporter.close()
    assert samples(text)["hooktrace_steps_total", NET] == 2


def test_tls_options_that_contradict_are_refused(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    """Half a key pair, a client check without TLS or without a CA, and bad files are explained."""
    cert, key = certificate
    with pytest.raises(ValueError, match="pass both"):
        PrometheusExporter(port=0, certfile=cert)
    with pytest.raises(ValueError, match="pass certfile and keyfile"):
        PrometheusExporter(port=0, client_auth_required=True)
    with pytest.raises(ValueError, match="pass client_cafile or client_capath"):
        PrometheusExporter(port=0, certfile=cert, keyfile=key, client_auth_required=True)
    with pytest.raises(OSError, match=r"nowhere\.pem.*pass readable PEM files"):
        PrometheusExporter(port=0, certfile=cert, keyfile=tmp_path / "nowhere.pem")


def test_file_sd_is_written_once_known_and_removed(make: Make, tmp_path: Path) -> None:
    """The target file appears with the first export, names the rank, and goes with ``close``."""
    exporter = make(file_sd=tmp_path / "targets")
    assert list((tmp_path / "targets").iterdir()) == []
    exporter.export(make_batch(rank=1))
    path = tmp_path / "targets" / "hooktrace-rank1.json"
    assert json.loads(path.read_text()) == [
        {
            "targets": [f"127.0.0.1:{exporter.port}"],
            "labels": {
                "rank": "1",
                "local_rank": "1",
                "host": "host-a",
            },
        }
    ]
    assert list(path.parent.iterdir()) == [path]
    exporter.close()
    assert list(path.parent.iterdir()) == []


def test_two_endpoints_of_a_rank_have_a_file_each(make: Make, tmp_path: Path) -> None:
    """Two tracers of a process on free ports: neither hides the other."""
    exporters = [make(file_sd=tmp_path) for _ in range(2)]
    for exporter in exporters:
        exporter.export(make_batch())
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["hooktrace-rank0-2.json", "hooktrace-rank0.json"]
    ports = {json.loads(path.read_text())[0]["targets"][0] for path in files}
    assert ports == {f"127.0.0.1:{exporter.port}" for exporter in exporters}
    exporters[0].close()
    assert [path.name for path in tmp_path.iterdir()] == ["hooktrace-rank0-2.json"]
    third = make(file_sd=tmp_path)
    third.export(make_batch())
    assert len(list(tmp_path.iterdir())) == 2


def test_file_sd_of_a_later_run_is_left_alone(make: Make, tmp_path: Path) -> None:
    """``close`` removes only what this exporter wrote; a path ending in .json is a prefix."""
    exporter = make(file_sd=tmp_path / "job.json")
    exporter.export(make_batch())
    path = tmp_path / "job-rank0.json"
    path.write_text("[]")
    exporter.close()
    assert path.read_text() == "[]"


def test_file_sd_that_fails_keeps_the_metrics(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A target file that cannot be written is one warning; scrapes go on."""
    exporter = make(file_sd=tmp_path / "targets")
    (tmp_path / "targets").rmdir()
    exporter.export(make_batch())
    exporter.export(make_batch())
    assert [r.getMessage().split(":")[0] for r in caplog.records] == [
        "Prometheus will not discover rank 0"
    ]
    assert samples(get(exporter.url))["hooktrace_steps_total", NET] == 4
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="pass a writable directory"):
        make(file_sd=tmp_path / "file")
