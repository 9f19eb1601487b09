"""A tracer's life: options, start, close."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from hooktrace import Tracer
from tests.fakes import FakeExporter, Job


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("error_every", -1, "error_every is -1; pass a whole number of at least 0"),
        ("error_every", 2.5, "error_every is 2.5; pass a whole number of at least 0"),
        ("error_every", "100", "error_every is '100'; pass a whole number of at least 0"),
        ("first_step", -1, "first_step is -1; pass a whole number of at least 0"),
        ("first_step", 1.5, "first_step is 1.5; pass a whole number of at least 0"),
        ("keep_steps", -1, "keep_steps is -1; pass a whole number of at least 0"),
        ("keep_buckets", -1, "keep_buckets is -1; pass a whole number of at least 0"),
        ("ring_capacity", 0, "ring_capacity is 0; pass a whole number of at least 1"),
        ("ring_capacity", float("inf"), "ring_capacity is inf; pass a whole number of at least 1"),
        ("interval_s", -1, "interval_s is -1; pass a number of seconds above 0"),
        ("interval_s", 0, "interval_s is 0; pass a number of seconds above 0"),
        ("interval_s", float("inf"), "interval_s is inf; pass a number of seconds above 0"),
        ("interval_s", float("nan"), "interval_s is nan; pass a number of seconds above 0"),
        ("interval_s", "1", "interval_s is '1'; pass a number of seconds above 0"),
        ("close_timeout_s", -1, "close_timeout_s is -1; pass a number of seconds above 0"),
        ("close_timeout_s", None, "close_timeout_s is None; pass a number of seconds above 0"),
        ("hang_after_s", float("inf"), "hang_after_s=inf is no time to wait; pass seconds"),
        ("on_anomaly", "shout", "on_anomaly='shout' is not known; pass record, warn, raise"),
        ("error", "lokal", "error='lokal' is not known; pass global or local"),
    ],
)
def test_bad_arguments_of_a_tracer_are_named(option: str, value: Any, message: str) -> None:
    """Before it opens anything."""
    with pytest.raises(ValueError, match=re.escape(message)):
        Tracer(**{option: value})


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


def test_a_bad_rank_variable_costs_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that sets LOCAL_RANK to nothing does not stop the drain."""
    monkeypatch.setenv("LOCAL_RANK", "")
    with Tracer() as tracer:
        Job(tracer).step()
        assert len(tracer.steps()) == 1
        assert tracer.losses() == {}


def test_a_resumed_job_goes_on_with_its_steps() -> None:
    """Its first two steps are as much of a warm-up as any."""
    with Tracer(first_step=100, error_every=0) as tracer:
        job = Job(tracer, buckets=2)
        for _ in range(4):
            job.step()
        assert [(s.step, s.warmup) for s in tracer.steps()] == [
            *((100, True), (101, True)),
            *((102, False), (103, False)),
        ]
        assert [layout.step for layout in tracer.layouts()] == [100]


def test_close_twice() -> None:
    """The second close does nothing, and hooks run on untraced."""
    exporter = FakeExporter()
    tracer = Tracer([exporter])
    job = Job(tracer)
    job.step()
    assert tracer.close() is True
    assert tracer.close() is True
    job.step()
    assert exporter.closed == 1
    assert exporter.steps == [0]
    assert tracer.losses() == {}


def test_close_while_close_runs() -> None:
    """A signal handler may call close() while it runs: no deadlock, each within its deadline."""
    nested = []

    class Interrupting(FakeExporter):
        def close(self) -> None:
            closer = threading.Thread(target=lambda: nested.append(tracer.close(0.2)))
            closer.start()
            closer.join(60)
            assert not closer.is_alive()

    tracer = Tracer([Interrupting()])
    Job(tracer).step()
    assert tracer.close(60)
    assert nested == [False]


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
    assert tracer._drain._thread.ident is None
    assert exporter.closed == 1
