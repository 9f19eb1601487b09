"""The table of settings: what follows it, what it refuses, and what the environment sets."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from hooktrace import Tracer, exporters
from hooktrace.tracing.options import EXPORTERS, TRACER, from_environment
from tests.exporters.processes import get
from tests.exporters.records_sample import make_batch


def test_signatures_follow_the_table() -> None:
    """A tracer's in names, order, types and defaults; an exporter's in names and defaults."""
    found, hints = inspect.signature(Tracer).parameters.values(), get_type_hints(Tracer.__init__)
    assert [(p.name, p.default) for p in found] == [(s.name, s.default) for s in TRACER]
    for s in TRACER:
        wanted = s.type if s.default is not None else s.type | None
        assert s.type is object or hints[s.name] == wanted, s
    for owner, settings in EXPORTERS.items():
        parameters = inspect.signature(getattr(exporters, owner)).parameters
        for s in filter(lambda s: s.name, settings):
            assert parameters[s.name].default in (s.default, inspect.Parameter.empty), s


@pytest.mark.parametrize(
    ("option", "values", "wanted"),
    [
        ("error_every", (-1, 2.5, "100", None), "a whole number of at least 0"),
        ("ring_capacity", (0, float("inf")), "a whole number of at least 1"),
        ("interval_s", (-1, 0, float("nan"), "1", None), "a number of seconds above 0"),
        ("hang_after_s", (0.0, float("inf"), 1e300), "a number of seconds above 0"),
        ("on_anomaly", ("shout", None), "one of record, warn, raise"),
        ("on_hang", ("explode",), "one of record, warn, dump, abort"),
    ],
)
def test_bad_arguments_of_a_tracer_are_named(option: str, values: Any, wanted: str) -> None:
    """Before it opens anything."""
    for value in values:
        with pytest.raises(ValueError, match=re.escape(f"{option} is {value!r}; pass {wanted}")):
            Tracer(**{option: value})


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("HOOKTRACE_PROMETHUS_PORT", "9464", " is not a setting of hooktrace"),
        ("HOOKTRACE_PROMETHEUS_PORT", "http", "=http has no effect"),
        ("HOOKTRACE_HANG_AFTER_S", "inf", "=inf has no effect; set it to a number of seconds"),
        ("HOOKTRACE_ERROR_EVERY", "often", "=often has no effect; set it to a whole number"),
    ],
)
def test_what_cannot_work_is_named(
    variable: str,
    text: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And left out: training starts all the same."""
    monkeypatch.setenv(variable, text)
    assert from_environment() == {"exporters": []}
    (message,) = caplog.messages
    assert message.startswith(variable + said)


@pytest.mark.parametrize(
    ("value", "read"), [("yes", True), ("0", False), ("False", False), ("", None)]
)
def test_the_environment_turns_switches(
    value: str, read: bool | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The token is for the clients of a job, and no setting that is misspelt."""
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "0")
    monkeypatch.setenv("HOOKTRACE_CHANNEL", value)
    monkeypatch.setenv("HOOKTRACE_CHANNEL_TOKEN", "00" * 16)
    found = from_environment()
    assert (found["error_every"], found.get("channel")) == (0, read)
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
    assert from_environment() == {"exporters": []}
    assert caplog.text.count("has no effect: set HOOKTRACE_PROMETHEUS_PORT too") == 3
    monkeypatch.setenv("HOOKTRACE_PROMETHEUS_PORT", "0")
    (exporter,) = from_environment()["exporters"]
    exporter.export(make_batch())
    found = get(exporter.url)
    assert [path.name for path in (tmp_path / "targets").iterdir()] == ["hooktrace-rank0.json"]
    exporter.close()
    assert exporter.url.startswith("http://127.0.0.2:")
    assert "hooktrace_bucket_duration_seconds_sum" in found
    assert "hooktrace_bucket_duration_seconds_bucket" not in found
