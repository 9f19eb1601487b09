"""The environment's settings."""

from __future__ import annotations

import logging

import pytest

from hooktrace.tracing import settings


def test_unknown_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt variable is named, a bad value is left out, and training starts all the same."""
    monkeypatch.setenv("HOOKTRACE_PROMETHUS_PORT", "9464")
    monkeypatch.setenv("HOOKTRACE_PROMETHEUS_PORT", "http")
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "often")
    with caplog.at_level(logging.WARNING):
        assert settings.from_environment() == {"exporters": []}
    assert "HOOKTRACE_PROMETHUS_PORT is not a setting of hooktrace" in caplog.text
    assert "HOOKTRACE_PROMETHEUS_PORT=http has no effect" in caplog.text
    assert "HOOKTRACE_ERROR_EVERY=often has no effect: it is a number of steps" in caplog.text
    assert "HOOKTRACE_ERROR_EVERY is not a setting" not in caplog.text
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "0")
    assert settings.from_environment()["error_every"] == 0


@pytest.mark.parametrize(
    ("value", "debug"), [("1", True), ("yes", True), ("0", False), ("", False)]
)
def test_the_environment_turns_debug_mode_on(
    value: str, debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OpenTelemetry's switch is read."""
    monkeypatch.setenv("HOOKTRACE_DEBUG", value)
    assert settings.from_environment().get("debug", False) == debug
