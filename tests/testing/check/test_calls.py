"""What a hook sent, from torch's recorder, or where that does not know from the tracer."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace.probes.wire import FlightRecorder, UnknownError
from hooktrace.records import Transfer
from hooktrace.testing.check.calls import Call
from hooktrace.testing.check.wire_format import WireFormat

HALVES = Transfer(collective="all_reduce", dtype="float16", wire_bytes=2000)
EARLY = SimpleNamespace(wire_bytes=1000, transfers=(), numel=1000, step=0)
KNOWN = SimpleNamespace(wire_bytes=2000, transfers=(HALVES,), numel=1000, step=1)
UNKNOWN = SimpleNamespace(wire_bytes=None, transfers=(), numel=1000, step=1)


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ((EARLY, KNOWN), WireFormat(2, "float16", 16.0)),
        ((UNKNOWN,), WireFormat(0, "unknown", None)),
    ],
)
def test_the_tracer_knows_what_torchs_recorder_does_not(
    monkeypatch: pytest.MonkeyPatch, buckets: Any, expected: WireFormat
) -> None:
    """Of staged hooks, since the first step that is asked for; what nobody knows has no bound."""

    def unknown(*_: object) -> None:
        raise UnknownError("off")

    monkeypatch.setattr(FlightRecorder, "issued", unknown)
    tracer: Any = SimpleNamespace(flush=lambda: None, buckets=lambda: buckets)
    call = Call(((1000,),), 2)
    call.began_ns = [0, 0]
    found = call.wire(1, tracer)
    assert found == expected
    assert (found.tolerance(2) == math.inf) == (buckets == (UNKNOWN,))
