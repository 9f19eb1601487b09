"""Where summaries are made: processes here; clusters are in tests/integrations/test_clusters.py."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace.analysis.summaries import Job, summaries_on
from hooktrace.analysis.summaries.engines import pool_of
from hooktrace.records.errors import UsageError
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job


@pytest.mark.slow
def test_two_processes_of_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("datasketches")
    job = SyntheticJob(ranks=6, steps=5)
    write_job(job, tmp_path)
    files, told = list(find_records(tmp_path).values()), []
    found = summaries_on("local:2", files, Job(job.run(0), job.run(0)), told.append)
    assert found.ranks == set(range(6))
    assert told == [1, 2, 3, 4, 5, 6]
    assert 1 <= len(found.memory) <= 2


@pytest.mark.parametrize("on", ["", "local:0", "local:x", "spark://a:1", "dask", "ray://"])
def test_what_is_no_engine_is_named(on: str) -> None:
    with pytest.raises(UsageError, match=r"pass --on local, local:4, dask://host:port or ray://"):
        pool_of(on)


@pytest.mark.parametrize(
    ("on", "package"), [("dask://h:1", r"dask\[distributed\]"), ("ray://h:1", r"ray\[client\]")]
)
def test_a_library_that_is_not_installed(
    on: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=f"pip install '{package}'"):
        pool_of(on)


class _Ray:
    """Ray's client, with what ``init`` raises, one after another; it does its work here."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)

    def init(self, url: str) -> AbstractContextManager[None]:
        if self.troubles:
            raise self.troubles.pop(0)
        return nullcontext()

    def remote(self, function: Any) -> Any:
        return SimpleNamespace(remote=function)

    def wait(self, waiting: list[Any]) -> tuple[list[Any], list[Any]]:
        return waiting[:1], waiting[1:]

    def get(self, done: list[Any]) -> list[Any]:
        return done


LATE = ConnectionError("Initialization failure from server: psutil.ZombieProcess")


@pytest.mark.parametrize(
    ("troubles", "comes"), [((), True), ((LATE,), True), ((LATE, LATE), False)]
)
def test_a_head_whose_process_for_a_client_comes_late_is_asked_once_more(
    troubles: tuple[Exception, ...], comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", _Ray(*troubles))
    with nullcontext() if comes else pytest.raises(UsageError, match="no cluster answers at h:1"):
        assert list(pool_of("ray://h:1")(abs, [-1, 2])) == [1, 2]


def test_nobody_else_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no head is, there will be none in a moment."""
    monkeypatch.setitem(sys.modules, "ray", _Ray(ConnectionError("ray client connection timeout")))
    with pytest.raises(UsageError, match="no cluster answers at h:1: ray client connection"):
        list(pool_of("ray://h:1")(abs, [-1]))
