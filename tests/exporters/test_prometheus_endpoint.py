"""Who shares a port, who gets another one, and what is said of it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hooktrace.exporters import PrometheusExporter
from tests.exporters.conftest import Make
from tests.exporters.processes import get
from tests.exporters.records_sample import make_batch, make_layout
from tests.exporters.test_prometheus import NET, samples
from tests.ports import free_port, free_ports

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


def test_bad_addresses_end_in_their_fix() -> None:
    with pytest.raises(OSError, match=r"such as addr='127\.0\.0\.1'"):
        PrometheusExporter(port=0, addr="192.0.2.1")
    with pytest.raises(OSError, match="at most 65535; pass a lower port, or port=0"):
        PrometheusExporter(port=65535, local_rank=3)


def test_two_tracers_of_a_process_share_a_port(make: Make, tmp_path: Path) -> None:
    """Their counts add up, nothing is there twice, and the last one to close frees it.

    The gauges of one go with it: a last value of what has ended says nothing.
    """
    port = free_port()
    first, second = (make(port=port, local_rank=0, file_sd=tmp_path) for _ in range(2))
    first.export(replace(make_batch(steps=3), losses={"late": 2}))
    own = replace(make_layout(), model="second")
    second.export(replace(make_batch(steps=1), records=(own,), losses={"late": 5}))
    names = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(get(first.url))
        for sample in family.samples
    ]
    assert len(names) == len(set(names))
    found = samples(get(first.url))
    assert (first.url, found[STEPS, NET]) == (second.url, 4)
    assert found["hooktrace_records_lost_total", (("reason", "late"),)] == 7
    assert found["hooktrace_exposed_seconds_count", NET] == 4
    rebuild = "hooktrace_bucket_rebuilds{"
    assert get(second.url).count(rebuild) == 2
    first.close()
    assert get(second.url).count(rebuild) == 1
    found = samples(get(second.url))
    assert found[STEPS, NET] == 4, "a total fell, which looks like a restart"
    assert found["hooktrace_records_lost_total", (("reason", "late"),)] == 7
    assert len(list(tmp_path.iterdir())) == 1
    second.close()
    assert list(tmp_path.iterdir()) == []
    second.close()
    socket.create_server(("127.0.0.1", port)).close()


def test_other_options_are_told_as_the_reason(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A port has one format."""
    port = free_port()
    first = make(port=port, local_rank=0)
    second = make(port=port, local_rank=0, bucket_histograms=False)
    assert second.port != first.port
    assert "by another tracer of this process, whose exporter has other options" in caplog.text


def test_ranks_of_one_process_do_not_share(make: Make, taken: int) -> None:
    """One displaced to the port of the other is still a rank of its own."""
    ports = {make(port=taken, local_rank=rank).port for rank in (0, 1)}
    assert ports == {taken + 1, taken + 2}


def test_series_say_whose_they_are_where_no_file_does(make: Make, tmp_path: Path) -> None:
    """Rank, local rank and host of each series, or of the target: never both."""
    plain, found_by_file = make(), make(file_sd=tmp_path)
    for exporter in (plain, found_by_file):
        exporter.export(make_batch(rank=1))
    assert 'hooktrace_steps_total{hook="fp16_compress_hook",host="host-a",local_rank="1"' in get(
        plain.url
    )
    assert "local_rank" not in get(found_by_file.url)


def test_a_forked_child_shares_nothing_of_its_parent(make: Make) -> None:
    """The server is the parent's; the child gets a port of its own."""
    port = free_port()
    make(port=port, local_rank=0)
    child = os.fork()
    if child == 0:
        os._exit(0 if make(port=port, local_rank=0).port != port else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
