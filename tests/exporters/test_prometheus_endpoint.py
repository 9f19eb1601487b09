"""Who shares a port, who gets another one, and the files by which Prometheus finds ranks."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hooktrace.exporters.target_file import TargetFile
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
    """Of two ranks the first one, displaced, does not displace the second, nor share with it."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert make(port=taken, local_rank=0).port == taken + 2
    assert make(port=taken, local_rank=1).port == taken + 1


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({}, r"bind 127.0.0.1:\d+: the port is in use; pass port=0 for a free one$"),
        ({"port": 0, "addr": "192.0.2.1"}, r"such as addr='127\.0\.0\.1'"),
        ({"port": 65535, "local_rank": 3}, "at most 65535; pass a lower port, or port=0"),
        ({"port": 0, "file_sd": __file__}, "pass a writable directory"),
    ],
)
def test_what_cannot_be_served_ends_in_its_fix(
    options: dict[str, Any], fix: str, make: Make, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hooktrace.exporters.prometheus_endpoint._TRIES", 1)
    with pytest.raises(OSError, match=fix):
        make(**{"port": taken, **options})


def test_two_tracers_of_a_process_share_a_port(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their counts add up; the last one to close frees it; the gauges of one go with it."""
    port = free_port()
    first, second = (make(port=port, local_rank=0, file_sd=tmp_path) for _ in range(2))
    first.export(replace(make_batch(steps=3), losses={"unfinished": 2}))
    own = replace(make_layout(), model="second")
    second.export(replace(make_batch(steps=1), records=(own,), losses={"unfinished": 5}))
    names = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(get(first.url))
        for sample in family.samples
    ]
    assert len(names) == len(set(names))
    found = samples(get(first.url))
    assert (first.url, found[STEPS, NET]) == (second.url, 4)
    assert found["hooktrace_records_lost_total", (("reason", "unfinished"),)] == 7
    rebuild = "hooktrace_bucket_rebuilds{"
    assert get(second.url).count(rebuild) == 2
    other = make(port=port, local_rank=0, bucket_histograms=False)
    assert other.port != port
    assert "by another tracer of this process, whose exporter has other options" in caplog.text
    first.close()
    assert get(second.url).count(rebuild) == 1
    assert samples(get(second.url))[STEPS, NET] == 4, "a total fell, which looks like a restart"
    assert len(list(tmp_path.iterdir())) == 1
    second.close()
    assert list(tmp_path.iterdir()) == []
    second.close()
    socket.create_server(("127.0.0.1", port)).close()


def test_a_forked_child_shares_nothing_of_its_parent(make: Make) -> None:
    """It gets a port of its own, and does not keep the parent's from a next tracer."""
    exporter = make(port=free_port(), local_rank=0)
    ours, its = socket.socketpair()
    with ours, its:
        if os.fork() == 0:
            ours.close()
            its.send(bytes([make(port=exporter.port, local_rank=0).port != exporter.port]))
            its.recv(1)  # until the parent is done
            os._exit(0)
        assert ours.recv(1) == b"\1"
        exporter.close()
        socket.create_server(("127.0.0.1", exporter.port)).close()


def test_file_sd_is_written_once_known_and_removed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the rank, from the first export to ``close``; without it each series does.

    Also in a scrape while it is removed: Prometheus knows it for some seconds more.
    """
    plain, exporter = make(), make(file_sd=tmp_path / "targets")
    assert list((tmp_path / "targets").iterdir()) == []
    for one in (plain, exporter):
        one.export(make_batch(rank=1))
    path = tmp_path / "targets" / "hooktrace-rank1.json"
    labels = {"rank": "1", "local_rank": "1", "host": "host-a"}
    targets = [f"127.0.0.1:{exporter.port}"]
    assert json.loads(path.read_text()) == [{"targets": targets, "labels": labels}]
    assert list(path.parent.iterdir()) == [path]
    assert f'{STEPS}{{hook="fp16_compress_hook",host="host-a",local_rank="1"' in get(plain.url)
    assert "local_rank" not in get(exporter.url)
    remove, scraped = TargetFile.remove, list[str]()
    monkeypatch.setattr(
        TargetFile, "remove", lambda file: (remove(file), scraped.append(get(exporter.url)))
    )
    exporter.close()
    assert list(path.parent.iterdir()) == []
    assert "local_rank" not in scraped[0]


def test_two_endpoints_of_a_rank_have_a_file_each(make: Make, tmp_path: Path) -> None:
    """Two tracers of a process on free ports: neither hides the other, nor takes its file away."""
    exporters = [make(file_sd=tmp_path / "job.json") for _ in range(2)]
    for exporter in exporters:
        exporter.export(make_batch())
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["job-rank0-2.json", "job-rank0.json"]
    ports = {json.loads(path.read_text())[0]["targets"][0] for path in files}
    assert ports == {f"127.0.0.1:{exporter.port}" for exporter in exporters}
    files[0].write_text("[]")  # by a later run
    for exporter in exporters:
        exporter.close()
    assert list(tmp_path.iterdir()) == files[:1]


def test_file_sd_that_fails_keeps_the_metrics(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A target file that cannot be written is one warning; scrapes go on."""
    exporter = make(file_sd=tmp_path / "targets")
    (tmp_path / "targets").rmdir()
    exporter.export(make_batch())
    exporter.export(make_batch())
    (warned,) = caplog.messages
    assert warned.startswith("Prometheus will not discover rank 0:")
    assert samples(get(exporter.url))[STEPS, NET] == 4
