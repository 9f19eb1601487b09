"""What OpenTelemetry's launcher finds and calls."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint

import pytest

from hooktrace.integrations import start
from tests.distributed.harness import REPOSITORY


def test_the_entry_point_instruments(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the launcher does it: load, make, instrument with options of its own."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    group = "opentelemetry_instrumentor"
    ((name, value),) = project["entry-points"][group].items()
    calls: list[object] = []
    monkeypatch.setattr(start, "begin", lambda **options: calls.append(options))
    monkeypatch.setattr(start, "end", lambda: calls.append("end"))
    instrumentor = EntryPoint(name, value, group).load()()
    assert instrumentor.instrumentation_dependencies() == ("torch >= 2.6",)
    instrumentor.instrument(raise_exception_on_conflict=True)
    instrumentor.uninstrument()
    assert calls == [{"telemetry": True}, "end"]
