"""The drain's thread: nobody waits for it in vain."""

from __future__ import annotations

import threading

import pytest

from hooktrace import Tracer
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
