"""Where a tracer's records go in a job that hooktrace started to measure it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.exporters import RecordFileExporter
from hooktrace.tracing.redirected import FOLDER, redirected


class Given:
    """An exporter that says whether it was closed."""

    name = "given"
    closed = False

    def export(self, batch: object) -> None:
        raise AssertionError

    def close(self) -> None:
        """Take note of it, and fail as others may."""
        self.closed = True
        raise OSError("gone")


def test_a_job_as_users_start_it_exports_to_what_it_says() -> None:
    given = Given()
    assert redirected([given]) == (given,)
    assert not given.closed


def test_a_measured_job_exports_to_folders_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One a tracer; what it was given is closed."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    given = Given()
    (first,), (second,) = redirected([given]), redirected([])
    assert given.closed
    assert "could not be closed" in caplog.text
    assert isinstance(first, RecordFileExporter)
    assert isinstance(second, RecordFileExporter)
    assert first.logdir != second.logdir
    assert {first.logdir.parent, second.logdir.parent} == {tmp_path}
