"""A tracer's life: start, states, alarms, close, its models, and the process's default tracer."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from hooktrace import AnomalyError, Tracer, default_tracer, trace
from hooktrace.ranks import native_calls
from hooktrace.records import AnomalyRecord
from hooktrace.staging.ring import State
from hooktrace.testing import FakeBucket
from hooktrace.tracing import tracer as module
from hooktrace.tracing.options import OnAnomaly
from hooktrace.tracing.tracer import TracedModels, open_tracers
from tests.exporters.records_sample import make_anomaly
from tests.fakes import FakeExporter, Job, plain


def test_without_a_thread_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system gives no thread, tracing is off with one warning that says why."""

    def refuse(self: object) -> None:
        raise RuntimeError("can't start new thread")

    tracer = Tracer()
    job = Job(tracer)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        job.step()
        job.step()
    assert tracer.close()
    assert caplog.text.count("raise the limit of threads") == 1


def test_a_resumed_job_goes_on_with_its_steps() -> None:
    """Its first two steps are as much of a warm-up as any."""
    with Tracer(first_step=100, error_every=0) as tracer:
        job = Job(tracer, buckets=2)
        for _ in range(3):
            job.step()
        found = [(s.step, s.warmup) for s in tracer.steps()]
        assert found == [(100, True), (101, True), (102, False)]
        assert [layout.step for layout in tracer.assignments()] == [100]


def test_what_is_closed_does_not_start() -> None:
    """A signal handler may close between a call's look at the state and the start of the drain."""
    exporter = FakeExporter()

    def closing() -> int:
        if job is not None:
            tracer.close()
        return 0

    job: Job | None = None
    tracer = Tracer([exporter], clock=closing)
    job = Job(tracer)
    job.step()
    tracer.start()
    assert not tracer.started
    assert tracer._drain.ident is None
    assert exporter.closed == 1


def test_memory_is_bounded() -> None:
    """It has the last steps only, by either bound."""
    with Tracer(keep_steps=10, keep_buckets=12, error_every=0) as tracer:
        job = Job(tracer, buckets=4)
        for _ in range(20):
            job.step()
        assert [s.step for s in tracer.steps()] == [17, 18, 19]
        assert len(tracer.buckets()) == 12


def test_a_clock_that_is_not_compared_has_no_offset() -> None:
    """Nor one of the user's own beside another tracer's."""
    options: list[Any] = [{"align_clocks": False}, {"channel": False}, {}]
    with ExitStack() as stack:
        for given in (*options, {"clock": time.monotonic_ns}):
            tracer = stack.enter_context(Tracer(**given))
            tracer.start()
            assert not given or tracer.clock_offset(0) is None


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


def test_recording_is_switched_off_and_on() -> None:
    """Not after the end, when hooks run on untraced; a second close does nothing."""
    exporter = FakeExporter()
    tracer = Tracer([exporter])
    job = Job(tracer)
    for on in (True, False, True):
        tracer.recording = on
        job.step()
    assert tracer.close()
    tracer.recording = True
    job.step()
    assert tracer.close()
    assert exporter.steps == [0, 2]  # as ranks that were not paused count
    assert (exporter.closed, tracer.losses()) == (1, {})


def test_the_end_of_a_process_closes_all_and_waits_for_native_calls(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where one of them cannot be closed, which is logged; in that order."""
    ended: list[int] = []
    tracers = [Tracer() for _ in range(3)]
    monkeypatch.setattr(native_calls, "wait", lambda: ended.append(len(open_tracers)))
    with monkeypatch.context() as patch:
        patch.setattr(tracers[1], "close", lambda: 1 // 0)
        module._close_all()
    tracers[1].close()
    assert ended == [1]
    assert not open_tracers & set(tracers)
    assert "call its close() before" in caplog.text


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose default tracer was not made yet."""
    monkeypatch.setattr(module, "_default", None)
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "0")


@pytest.mark.usefixtures("fresh")
def test_the_default_tracer_is_made_anew_when_it_was_closed() -> None:
    """Not when it is alarmed or off."""
    first = default_tracer()
    for state in (State.ALARMED, State.OFF):
        first.state = state
        assert default_tracer() is first
    first.close()
    second = default_tracer()
    assert second is not first
    second.close()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("steps", "environment", "said"),
    [
        (4, {}, "model0: local, medians of 2 steps of "),
        (1, {}, "1 step, too few for medians"),
        (0, {}, ""),
        (4, {"RANK": "1"}, ""),
        (4, {"HOOKTRACE_RECORD_DIR": ""}, ""),  # which tells it to keep none
    ],
)
def test_a_default_tracer_that_keeps_nothing_says_what_it_saw(
    steps: int,
    environment: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line, once and of one rank, which names the setting that keeps it."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tracer = default_tracer()
    job = Job(tracer)
    for _ in range(steps):
        job.step()
    tracer.close()
    tracer.close()
    assert len(caplog.messages) == bool(said)
    for line in caplog.messages:
        assert line.startswith(f"nothing keeps what the default tracer saw: {said}")
        assert line.endswith("HOOKTRACE_RECORD_DIR=runs/mine, then: hooktrace report runs/mine")


def test_names_are_unique() -> None:
    """Whether they are asked for or given."""
    known = TracedModels()
    asked = (None, "net", "net", "net#2", "net", None)
    names = [known.name(wanted) for wanted in asked]
    assert names == ["model0", "net", "net#2", "net#2#2", "net#3", "model1"]


def test_what_is_so_of_many_models_is_said_of_the_first(caplog: pytest.LogCaptureFixture) -> None:
    """A job that makes models for as long as it runs must not fill its log."""
    with Tracer(align_clocks=False) as tracer:
        for _ in range(3):
            trace(plain, tracer=tracer)(None, FakeBucket([torch.zeros(3, device="meta")]))
    (message,) = caplog.messages
    assert message.startswith("buckets of model0 are not looked at: torch.accelerator knows no ")
