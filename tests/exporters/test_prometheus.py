"""The Prometheus exporter, scraped over HTTP and by a real Prometheus."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from hooktrace.exporters import PrometheusExporter
from tests.exporters.processes import free_port, get, get_json, running, until
from tests.exporters.records_sample import HOOK, MODEL, full_batch, make_batch, make_layout

NET = (("hook", HOOK), ("model", MODEL))

Make = Callable[..., PrometheusExporter]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make exporters that are closed when the test ends."""
    made: list[PrometheusExporter] = []

    def build(**options: object) -> PrometheusExporter:
        made.append(PrometheusExporter(**{"port": 0, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield build
    for exporter in made:
        exporter.close()


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the value of every sample by name and sorted labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_import_loads_no_backend() -> None:
    """Importing the exporters imports neither prometheus_client nor opentelemetry."""
    code = (
        "import sys, hooktrace.exporters\n"
        "loaded = {m.split('.')[0] for m in sys.modules}\n"
        "print(sorted(loaded & {'prometheus_client', 'opentelemetry', 'tensorboard'}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stdout.strip() == "[]"


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
    assert found["hooktrace_overlap_ratio", NET] == pytest.approx(1 / 3)
    assert found["hooktrace_records_lost_total", (("reason", "ring_full"),)] == 3


def test_values_on_a_bound_belong_to_its_bucket(make: Make) -> None:
    """A histogram's bounds are inclusive, as ``le`` says."""
    exporter = make()
    step, buckets = make_batch(steps=1).steps[0]
    batch = replace(make_batch(), steps=((replace(step, exposed_ns=1_000_000), buckets),))
    exporter.export(batch)
    found = samples(get(exporter.url))
    assert found["hooktrace_exposed_seconds_bucket", (NET[0], ("le", "0.001"), NET[1])] == 1
    assert found["hooktrace_exposed_seconds_bucket", (NET[0], ("le", "0.0005"), NET[1])] == 0


def test_totals_so_far_are_not_added_up(make: Make) -> None:
    """A loss that every batch reports again is counted once."""
    exporter = make()
    for lost in (3, 3, 5):
        exporter.export(replace(make_batch(), losses={"ring_full": lost}))
    found = samples(get(exporter.url))
    assert found["hooktrace_records_lost_total", (("reason", "ring_full"),)] == 5


def test_rebuild_forgets_buckets_that_are_gone(make: Make) -> None:
    """After a rebuild to fewer buckets only the sizes of the new ones remain."""
    exporter = make()
    exporter.export(replace(make_batch(), records=(make_layout(0, bucket_count=3),)))
    exporter.export(replace(make_batch(), records=(make_layout(1, bucket_count=1),)))
    sizes = [key for key in samples(get(exporter.url)) if key[0] == "hooktrace_bucket_size_bytes"]
    assert [dict(labels)["bucket"] for _, labels in sizes] == ["0"]


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


def test_port_in_use_ends_in_its_remedy(make: Make) -> None:
    """The error names the address and says what to do, and the shared registry stays usable."""
    taken = make().port
    registry = CollectorRegistry()
    with pytest.raises(OSError, match=r"the port is in use; pass port=0 for a free one$") as caught:
        make(port=taken, local_rank=0, registry=registry)
    assert f"could not bind 127.0.0.1:{taken}" in str(caught.value)
    make(registry=registry)


def test_bad_addresses_end_in_their_remedy() -> None:
    """An address of another host and a port out of range are explained."""
    with pytest.raises(OSError, match=r"such as addr='127\.0\.0\.1'"):
        PrometheusExporter(port=0, addr="192.0.2.1")
    with pytest.raises(OSError, match="at most 65535; pass a lower port, or port=0"):
        PrometheusExporter(port=65535, local_rank=3)


def test_close_frees_the_port_and_may_be_repeated(make: Make) -> None:
    """After ``close`` the thread is gone and the same port can be bound again."""
    first = make()
    first.close()
    first.close()
    assert not first._thread.is_alive()
    second = make(port=first.port, local_rank=0)
    assert get(second.url) == ""


def test_file_sd_is_written_once_known_and_removed(make: Make, tmp_path: Path) -> None:
    """The target file appears with the first export, names the run, and goes with ``close``."""
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
                "world_size": "2",
                "run_id": "sample",
                "host": "host-a",
            },
        }
    ]
    assert list(path.parent.iterdir()) == [path]
    exporter.close()
    assert list(path.parent.iterdir()) == []


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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl; apt-get install openssl")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return cert, key


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
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=5):
        with opener.open(exporter.url, timeout=10) as response:
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


def test_prometheus_discovers_and_scrapes_the_ranks(
    make: Make, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    """A real Prometheus finds rank 0 over HTTP and rank 1 over HTTPS, each with its own total."""
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        pytest.skip("no prometheus; apt-get install prometheus")
    targets = tmp_path / "targets"
    cert, key = certificate
    make(file_sd=targets).export(make_batch(rank=0, steps=3))
    make(file_sd=targets, certfile=cert, keyfile=key).export(make_batch(rank=1, steps=4))
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [
            {
                "job_name": "hooktrace",
                "file_sd_configs": [{"files": [f"{targets}/*.json"]}],
                "tls_config": {"ca_file": str(cert)},
            }
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    command = [prometheus, f"--config.file={tmp_path}/prometheus.yml"]
    command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"]
    log = tmp_path / "prometheus.log"

    def query() -> dict[str, str]:
        url = f"http://127.0.0.1:{port}/api/v1/query?query=hooktrace_steps_total"
        result = get_json(url)["data"]["result"]
        return {series["metric"]["rank"]: series["value"][1] for series in result}

    with running(command, log):
        assert until(query, lambda found: len(found) == 2, log) == {"0": "3", "1": "4"}
