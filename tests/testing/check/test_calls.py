"""What a hook sent, from torch's recorder, or where that does not know from the tracer."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace.probes.wire import FlightRecorder, UnknownError
from hooktrace.records import Transfer
from hooktrace.testing.check.calls import wire_of
from hooktrace.testing.check.wire_format import NOT_KNOWN, WireFormat

NUMEL = 1000
HALVES = Transfer(collective="all_reduce", dtype="float16", wire_bytes=2 * NUMEL)


def wire(monkeypatch: pytest.MonkeyPatch, *buckets: Any) -> WireFormat:
    """Return what is said of one step where torch's recorder does not know."""

    def unknown(*_: object) -> None:
        raise UnknownError("off")

    monkeypatch.setattr(FlightRecorder, "issued", unknown)
    tracer: Any = SimpleNamespace(flush=lambda: None, buckets=lambda: buckets)
    return wire_of(tracer, 1, 0, NUMEL, ranks=2)


def test_the_tracer_knows_what_torchs_recorder_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of staged hooks, since the first step that is asked for; torch's may be off, or forget."""
    bucket = SimpleNamespace(wire_bytes=2 * NUMEL, transfers=(HALVES,), numel=NUMEL, step=1)
    early = SimpleNamespace(wire_bytes=NUMEL, transfers=(), numel=NUMEL, step=0)
    assert wire(monkeypatch, early, bucket) == WireFormat("half", "float16", 16.0)


def test_what_nobody_knows_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no loss is held against the hook; it is not said to have raised."""
    bucket = SimpleNamespace(wire_bytes=None, transfers=(), numel=NUMEL, step=1)
    found = wire(monkeypatch, bucket)
    assert found == NOT_KNOWN
    assert (found.kind, found.bits, found.is_bounded) == ("unknown", None, False)
    assert found.tolerance(2) == math.inf
