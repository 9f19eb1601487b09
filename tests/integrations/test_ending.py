"""What is said at the end, and of what."""

from __future__ import annotations

from pathlib import Path

import pytest

import hooktrace
from hooktrace.integrations import ending
from tests.fakes import Job


def test_the_summary_says_what_to_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A line a model, and the command; neither medians nor a folder that there are not."""
    monkeypatch.setenv("HOOKTRACE_RECORD_DIR", str(tmp_path))
    records = tmp_path / "plugins" / "hooktrace"
    records.mkdir(parents=True)
    with hooktrace.Tracer() as tracer:
        assert ending._summary(tracer) == [
            "nothing was recorded: no model has communicated while it was traced"
        ]
        (records / "rank00000.jsonl").touch()
        job = Job(tracer)
        job.step()
        assert tracer.flush()
        assert ending._summary(tracer) == [
            "too few steps were traced for medians",
            f"to open it: hooktrace report {tmp_path}",
        ]
        for _ in range(2):
            job.step()
        first, *_ = ending._summary(tracer)
    assert ", medians of " in first
