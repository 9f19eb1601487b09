"""The drain's thread: nobody waits for it in vain."""

from __future__ import annotations

import threading

import pytest

from hooktrace import Tracer
from hooktrace.tracing.drain import Drain
from tests.fakes import FakeExporter, Job


def test_a_hanging_exporter_cannot_hold_up_close(caplog: pytest.LogCaptureFixture) -> None:
    """close() returns at its deadline, false, and says what to look at."""
    release = threading.Event()

    class Hanging(FakeExporter):
        def export(self, batch: object) -> None:
            release.wait(30)

    tracer = Tracer([Hanging()], close_timeout_s=0.2)
    Job(tracer).step()
    assert tracer.close() is False
    assert "could not close within 0.2 s" in caplog.text
    assert "check its backend" in caplog.text
    release.set()
    tracer._drain._thread.join(30)


def test_an_exporter_may_ask_the_tracer() -> None:
    """flush() on the drain's own thread is false at once instead of waiting for itself."""
    answers = []

    class Asking(FakeExporter):
        def export(self, batch: object) -> None:
            answers.append(tracer.flush(timeout_s=600))
            tracer.summary()

    with Tracer([Asking()]) as tracer:
        Job(tracer).step()
        assert tracer.flush(60)
    assert answers
    assert not any(answers)  # of one batch, or of two


def test_what_was_stopped_works_no_more() -> None:
    """A signal handler may stop it where its thread is about to start."""
    cycles: list[bool] = []
    drain = Drain(cycles.append, 60)
    assert drain.stop(60)
    drain.start()
    drain._thread.join(60)
    assert drain.stop(60)
    assert cycles == [True]


def test_two_that_stop_it_at_once_have_one_last_cycle() -> None:
    """The second waits for the first; within the last cycle nobody waits for himself."""
    cycles: list[bool] = []
    answers: list[bool] = []

    def cycle(last: bool) -> None:
        cycles.append(last)
        second = threading.Thread(target=lambda: answers.append(drain.stop(0.05)))
        second.start()
        second.join(60)
        answers.append(drain.stop(600))

    drain = Drain(cycle, 60)
    assert drain.stop(60)
    assert cycles == [True]
    assert answers == [False, False]
