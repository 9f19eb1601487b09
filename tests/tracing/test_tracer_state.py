"""Anomalies that end the next backward pass, and the states that lead there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace import AnomalyError, Tracer, default_tracer
from hooktrace.ranks import native_calls
from hooktrace.records import AnomalyRecord
from hooktrace.tracing import settings
from hooktrace.tracing import tracer as module
from hooktrace.tracing.options import OnAnomaly
from hooktrace.tracing.tracer import State, open_tracers
from tests.exporters.records_sample import make_anomaly
from tests.fakes import Job


def anomaly(kind: str) -> AnomalyRecord:
    return replace(make_anomaly(kind=kind), message=f"{kind} happened")


def test_the_next_call_raises_once() -> None:
    """And hooks record again afterwards."""
    with Tracer(on_anomaly="raise") as tracer:
        job = Job(tracer)
        job.step()
        tracer.push(anomaly("wrong_sign"))
        tracer.push(anomaly("wrong_scale"))
        tracer.flush()
        assert tracer.state is State.ALARMED
        assert not tracer.recording
        with pytest.raises(AnomalyError, match="wrong_sign happened"):
            job.step()
        job.step()
        assert [s.step for s in tracer.steps()] == [0, 1]


@pytest.mark.parametrize(
    ("reaction", "kind", "logged"),
    [
        ("record", "wrong_sign", False),
        ("warn", "wrong_sign", True),
        ("raise", "hook_exception", True),  # which was raised already
        ("raise", "stall", True),  # which is over, and no fault of the hook
    ],
)
def test_what_raises_no_alarm(
    reaction: OnAnomaly, kind: str, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Tracer(on_anomaly=reaction) as tracer:
        tracer.start()
        tracer.push(anomaly(kind))
        tracer.flush()
        assert tracer.state is State.RECORDING
    text = f"{kind}: {kind} happened; see docs/errors-and-anomalies.md#{kind}"
    assert (text in caplog.text) == logged


def test_an_alarm_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default tracer is made anew when it was closed, not when it is alarmed or off."""
    monkeypatch.setattr(settings, "_tracer", None)
    first = default_tracer()
    for state in (State.ALARMED, State.OFF):
        first.state = state
        assert default_tracer() is first
    first.close()
    second = default_tracer()
    assert second is not first
    second.close()


def test_recording_is_switched_off_and_on() -> None:
    """Not after the end."""
    with Tracer() as tracer:
        job = Job(tracer)
        job.step()
        tracer.recording = False
        job.step()
        tracer.recording = True
        job.step()
        assert [step.step for step in tracer.steps()] == [0, 2]  # as ranks that were not count
        tracer.close()
        tracer.recording = True
        assert tracer.state is State.CLOSED


class Stuck:
    """A tracer that cannot be closed."""

    def close(self) -> bool:
        raise OSError("the disk is gone")

    def begin_in_child(self) -> None:
        raise AssertionError


def test_the_end_of_a_process_closes_all_and_waits_for_native_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where one of them cannot be closed, which is logged; in that order."""
    ended: list[int] = []
    tracers = [Tracer(), Tracer()]
    monkeypatch.setattr(native_calls, "wait", lambda: ended.append(len(open_tracers)))
    stuck = Stuck()
    open_tracers.add(stuck)
    try:
        module._close_all()
    finally:
        open_tracers.discard(stuck)
    assert ended == [1]
    assert not open_tracers & set(tracers)
    assert "the disk is gone" in caplog.text
    assert "call its close() before" in caplog.text
