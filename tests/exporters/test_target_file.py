"""The file by which Prometheus finds a rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.exporters.conftest import Make
from tests.exporters.processes import get
from tests.exporters.records_sample import make_batch
from tests.exporters.test_prometheus import NET, samples


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
