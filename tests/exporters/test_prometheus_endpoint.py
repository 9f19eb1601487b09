"""Who gets which port, and what is said of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hooktrace.exporters import PrometheusExporter
from tests.exporters.conftest import Make
from tests.exporters.processes import get
from tests.exporters.records_sample import make_batch
from tests.exporters.test_prometheus import NET, samples
from tests.ports import free_ports

STEPS = "hooktrace_steps_total"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of loopback at which another program listens; the two after it are free."""
    with socket.create_server(("127.0.0.1", free_ports(3))) as listener:
        yield listener.getsockname()[1]


def test_a_port_in_use_leads_to_the_next_free_one(
    make: Make, taken: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning says which, and so does the file by which Prometheus finds it."""
    exporter = make(port=taken, file_sd=tmp_path)
    assert exporter.port == taken + 1
    assert f"port {taken} of 127.0.0.1, for the metrics of this rank, is in use;" in caplog.text
    assert f"on port {taken + 1}" in caplog.text
    exporter.export(make_batch())
    (target,) = json.loads((tmp_path / "hooktrace-rank0.json").read_text())
    assert target["targets"] == [f"127.0.0.1:{taken + 1}"]
    assert STEPS in get(exporter.url)


def test_the_ports_of_other_ranks_of_the_host_are_left_to_them(
    make: Make, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two ranks the first one, displaced, does not displace the second."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert make(port=taken, local_rank=0).port == taken + 2
    assert make(port=taken, local_rank=1).port == taken + 1


def test_a_range_of_ports_that_are_all_in_use_is_an_error(
    make: Make, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hooktrace.exporters.prometheus_endpoint._TRIES", 1)
    with pytest.raises(OSError, match=r"the port is in use; pass port=0 for a free one$") as caught:
        make(port=taken)
    assert f"could not bind 127.0.0.1:{taken}" in str(caught.value)


def test_bad_addresses_end_in_their_remedy() -> None:
    with pytest.raises(OSError, match=r"such as addr='127\.0\.0\.1'"):
        PrometheusExporter(port=0, addr="192.0.2.1")
    with pytest.raises(OSError, match="at most 65535; pass a lower port, or port=0"):
        PrometheusExporter(port=65535, local_rank=3)


def test_two_tracers_of_a_process_have_a_port_each(make: Make, tmp_path: Path) -> None:
    """Prometheus finds both, each with its own counts; one that closes leaves the other."""
    port = free_ports(2)
    first, second = (make(port=port, local_rank=0, file_sd=tmp_path) for _ in range(2))
    assert (first.port, second.port) == (port, port + 1)
    first.export(make_batch(steps=3))
    second.export(make_batch(steps=1))
    assert [samples(get(one.url))[STEPS, NET] for one in (first, second)] == [3, 1]
    files = [json.loads(path.read_text())[0]["targets"] for path in sorted(tmp_path.iterdir())]
    assert sorted(files) == [[f"127.0.0.1:{port}"], [f"127.0.0.1:{port + 1}"]]
    first.close()
    assert samples(get(second.url))[STEPS, NET] == 1
    second.close()
    second.close()
    assert list(tmp_path.iterdir()) == []
    socket.create_server(("127.0.0.1", port)).close()


def test_series_say_whose_they_are_where_no_file_does(make: Make, tmp_path: Path) -> None:
    """Rank, local rank and host of each series, or of the target: never both."""
    plain, found_by_file = make(), make(file_sd=tmp_path)
    for exporter in (plain, found_by_file):
        exporter.export(make_batch(rank=1))
    assert 'hooktrace_steps_total{hook="fp16_compress_hook",host="host-a",local_rank="1"' in get(
        plain.url
    )
    assert "local_rank" not in get(found_by_file.url)
