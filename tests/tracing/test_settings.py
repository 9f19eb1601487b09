"""The environment's settings."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hooktrace import Tracer, default_tracer
from hooktrace.tracing import settings
from tests.exporters.processes import get
from tests.exporters.records_sample import make_batch
from tests.fakes import Job


def test_unknown_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt variable is named, a bad value is left out, and training starts all the same."""
    monkeypatch.setenv("HOOKTRACE_PROMETHUS_PORT", "9464")
    monkeypatch.setenv("HOOKTRACE_PROMETHEUS_PORT", "http")
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "often")
    monkeypatch.setenv("HOOKTRACE_HANG_AFTER_S", "inf")
    with caplog.at_level(logging.WARNING):
        assert settings.from_environment() == {"exporters": []}
    assert "HOOKTRACE_PROMETHUS_PORT is not a setting of hooktrace" in caplog.text
    assert "HOOKTRACE_PROMETHEUS_PORT=http has no effect" in caplog.text
    assert "HOOKTRACE_HANG_AFTER_S=inf has no effect; set it to a number of seconds" in caplog.text
    assert "HOOKTRACE_ERROR_EVERY=often has no effect; set it to a whole number" in caplog.text
    assert "HOOKTRACE_ERROR_EVERY is not a setting" not in caplog.text
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "0")
    assert settings.from_environment()["error_every"] == 0


@pytest.mark.parametrize(
    ("value", "read"), [("yes", True), ("0", False), ("False", False), ("", None)]
)
def test_the_environment_turns_switches(
    value: str, read: bool | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The token is for the clients of a job, and no setting that is misspelt."""
    monkeypatch.setenv("HOOKTRACE_DEBUG", value)
    monkeypatch.setenv("HOOKTRACE_CHANNEL", value)
    monkeypatch.setenv("HOOKTRACE_CHANNEL_TOKEN", "00" * 16)
    found = settings.from_environment()
    assert (found.get("debug"), found.get("channel")) == (read, read)
    with Tracer(**found) as tracer:
        tracer.start()
        assert (tracer._channel is not None) == (read is not False)
    assert caplog.text == ""


def test_prometheus_is_set_up_by_four_variables(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The port asks for it; the others are its options, and alone they have no effect."""
    monkeypatch.setenv("HOOKTRACE_PROMETHEUS_ADDR", "127.0.0.2")
    monkeypatch.setenv("HOOKTRACE_PROMETHEUS_FILE_SD", str(tmp_path / "targets"))
    monkeypatch.setenv("HOOKTRACE_PROMETHEUS_BUCKET_HISTOGRAMS", "0")
    with caplog.at_level(logging.WARNING):
        assert settings.from_environment() == {"exporters": []}
    assert caplog.text.count("has no effect: set HOOKTRACE_PROMETHEUS_PORT too") == 3
    monkeypatch.setenv("HOOKTRACE_PROMETHEUS_PORT", "0")
    (exporter,) = settings.from_environment()["exporters"]
    exporter.export(make_batch())
    found = get(exporter.url)
    assert [path.name for path in (tmp_path / "targets").iterdir()] == ["hooktrace-rank0.json"]
    exporter.close()
    assert exporter.url.startswith("http://127.0.0.2:")
    assert "hooktrace_bucket_duration_seconds_sum" in found
    assert "hooktrace_bucket_duration_seconds_bucket" not in found


@pytest.mark.parametrize(
    ("steps", "rank", "said"),
    [
        (4, "0", "model0: local, medians of 2 steps of "),
        (1, "0", "1 step, too few for medians"),
        (0, "0", ""),
        (4, "1", ""),
    ],
)
def test_a_default_tracer_that_keeps_nothing_says_what_it_saw(
    steps: int, rank: str, said: str, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """One line, once and of one rank, which names the setting that keeps it."""
    monkeypatch.setattr(settings, "_tracer", None)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "0")
    tracer = default_tracer()
    job = Job(tracer)
    for _ in range(steps):
        job.step()
    tracer.close()
    tracer.close()
    if not said:
        assert caplog.text == ""
        return
    (line,) = caplog.messages
    assert line.startswith(f"nothing keeps what the default tracer saw: {said}")
    assert line.endswith("HOOKTRACE_RECORD_DIR=runs/mine, then: hooktrace report runs/mine")
    assert ("%) exposed; to keep the next run, set" in line) == (steps > 1)


def test_a_default_tracer_that_keeps_its_records_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Nor one that is told to keep none, nor a tracer of the script's own."""
    monkeypatch.setattr(settings, "_tracer", None)
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "0")
    for make, folder in ((default_tracer, str(tmp_path)), (default_tracer, ""), (Tracer, None)):
        monkeypatch.delenv("HOOKTRACE_RECORD_DIR", raising=False)
        if folder is not None:
            monkeypatch.setenv("HOOKTRACE_RECORD_DIR", folder)
        tracer = make()
        tracer.error_every = 0
        job = Job(tracer)
        for _ in range(4):
            job.step()
        tracer.close()
    assert caplog.text == ""
