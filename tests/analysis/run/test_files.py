"""Which run is read, also at a URL as if it lay here, and what is no run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import hooktrace
from hooktrace.analysis.run.files import fetched, is_url, read_run
from hooktrace.records.errors import UsageError
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.report.test_command import call

JOB = SyntheticJob(ranks=2, steps=10, late_ms={1: 9.0})


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[str]:
    """Put a run into fsspec's memory; yield its URL."""
    fsspec = pytest.importorskip("fsspec")
    write_job(JOB, tmp_path / "run")
    files = fsspec.filesystem("memory")
    files.put(str(tmp_path / "run"), "/jobs", recursive=True)
    yield "memory://jobs"
    files.rm("/jobs", recursive=True)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_what_is_a_url() -> None:
    assert all(map(is_url, ["s3://b/run", "memory://run", "simplecache::s3://b/run", "file:///a"]))
    assert not any(map(is_url, ["runs/demo", "/runs/demo", r"C:\runs", "a:b", Path("s3:/run")]))
    assert fetched("runs/demo") == Path("runs/demo")


def test_it_is_the_same_run(memory: str, tmp_path: Path) -> None:
    """Files in their folder under the logdir, or named themselves."""
    here = hooktrace.load(tmp_path / "run").summary()
    here["source"].pop("path")
    for url in (memory, f"{memory}/plugins/hooktrace"):
        there = hooktrace.load(url).summary()
        assert there["source"].pop("path") == url
        assert there == here


@pytest.mark.slow
def test_commands_take_it(memory: str, tmp_path: Path) -> None:
    out, local = tmp_path / "t.json", (tmp_path / "run").as_uri()
    commands = [["report", memory], ["hang", memory], ["export", local, "--out", out]]
    for command in [*commands, ["compare", memory, local]]:
        result = call(*command)
        assert (result.exit_code, bool(result.stdout)) == (0, True), result.stderr


def test_over_http(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    write_job(JOB, tmp_path)
    with serving(tmp_path) as url:
        assert list(hooktrace.load(url).ranks["rank"]) == [0, 1]
        with pytest.raises(UsageError, match="there is no record file in http"):
            hooktrace.load(f"{url}/elsewhere")


def test_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match=r"there is no record file in memory://nowhere"):
        hooktrace.load("memory://nowhere")
    with pytest.raises(UsageError, match=r"cannot read nonsense://a: .*; pass a URL that fsspec"):
        hooktrace.load("nonsense://a")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match="pip install fsspec, or copy the run"):
        hooktrace.load("memory://nowhere")


def test_a_job_that_hung_in_its_first_step_is_a_run(tmp_path: Path) -> None:
    """Though it has no step; a file without either holds nothing to tell."""
    write_hung_job(SyntheticJob(steps=3), SyntheticHang(step=1), tmp_path)
    assert read_run(tmp_path).model_names == ["synthetic"]
    write_hung_job(SyntheticJob(steps=3), SyntheticHang(step=1, killed=(0, 1, 2, 3)), tmp_path)
    with pytest.raises(UsageError, match="hold no step"):
        read_run(tmp_path)
