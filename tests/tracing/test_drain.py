"""The drain: what goes out together, what a defect costs; nobody waits for it in vain.

What is lost is counted, and told once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hooktrace import Tracer, trace
from hooktrace.exporters import base
from hooktrace.records import AnomalyRecord, Batch
from hooktrace.records.errors import HookError
from hooktrace.staging.ring import Loss
from hooktrace.testing import FakeBucket
from hooktrace.tracing import drain
from tests.fakes import FakeExporter, FakeOperation, Job, buckets_of, hook_of, plain
from tests.staging.test_backward import chain


class Blocking(FakeExporter):
    """Holds the drain up in its first batch, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked, self.release = threading.Event(), threading.Event()

    def export(self, batch: Batch) -> None:
        super().export(batch)
        self.blocked.set()
        self.release.wait(30)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    """An exporter that is let go in any case."""
    exporter = Blocking()
    yield exporter
    exporter.release.set()


def test_an_anomaly_comes_with_the_batch_of_its_step(blocking: Blocking) -> None:
    """Of many steps in one cycle: an exporter that keeps or drops a step's detail needs it then."""
    calls = iter(range(1000))

    def failing(state: object, bucket: FakeBucket) -> object:
        if next(calls) in {41, 300}:  # in another bucket each: an anomaly is told once a bucket
            raise ValueError("no")
        return plain(state, bucket)

    with Tracer([blocking]) as tracer:
        job = Job(tracer, buckets=4)
        job.step()
        tracer.flush(0)
        assert blocking.blocked.wait(30)
        job.hook = trace(failing, tracer=tracer)
        for _ in range(100):
            with suppress(HookError):
                job.step()
        blocking.release.set()
    batches = [batch for batch in blocking.batches if batch.of(AnomalyRecord)]
    assert len(batches) == 2
    for batch in batches:
        (anomaly,) = batch.of(AnomalyRecord)
        assert (anomaly.model, anomaly.step) in {(s.model, s.step) for s, _ in batch.steps}


@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_check_finds_comes_with_the_batch_of_its_step(
    blocking: Blocking, at_once: bool
) -> None:
    """Of many steps in one cycle, and of one alone."""
    with Tracer([blocking], debug=True, error_every=0, align_clocks=False) as tracer:
        job = Job(tracer, buckets=4)
        chain(job.step).backward()
        tracer.flush(0)
        assert blocking.blocked.wait(30)
        if at_once:
            blocking.release.set()
        for number in range(1, 100):
            for index, bucket in enumerate(job.buckets):
                bucket.buffer().fill_(float("nan") if (number, index) in {(41, 1), (90, 2)} else 0)
            chain(job.step).backward()
            if at_once:
                tracer.flush()
        blocking.release.set()
    batches = [batch for batch in blocking.batches if batch.of(AnomalyRecord)]
    assert len(batches) == 2
    for batch in batches:
        (anomaly,) = batch.of(AnomalyRecord)
        assert anomaly.kind == "nonfinite_gradient"
        assert anomaly.step in {step.step for step, _ in batch.steps}


def test_a_defect_in_the_drain_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The drain survives an error of its own, reports it once with its traceback, and goes on."""

    def broken(self: object, call: object) -> None:
        raise ZeroDivisionError

    with Tracer() as tracer:
        job = Job(tracer)
        with monkeypatch.context() as patch:
            patch.setattr("hooktrace.tracing.assembler.Assembler._complete", broken)
            for _ in range(2):
                job.step()
                assert tracer.flush()
        job.step()
        assert [s.step for s in tracer.steps()] == [2]
        assert tracer.losses() == {"internal_error": 2}
    assert caplog.text.count("please report this with the traceback") == 1


def test_a_hanging_exporter_cannot_hold_up_close(
    blocking: Blocking, caplog: pytest.LogCaptureFixture
) -> None:
    """close() returns at its deadline, false, and says what to look at."""
    tracer = Tracer([blocking])
    Job(tracer).step()
    assert tracer.close(0.2) is False
    assert "could not close within 0.2 s" in caplog.text
    assert "check its backend" in caplog.text
    blocking.release.set()
    tracer._drain.join(30)


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


def test_an_overflowing_ring_counts_and_reports_once(caplog: pytest.LogCaptureFixture) -> None:
    """Calls that do not fit are lost, counted and reported once; training sees nothing of it."""
    release = threading.Event()

    class Slow(FakeExporter):
        def export(self, batch: object) -> None:
            release.wait(30)
            super().export(batch)

    slow = Slow()
    with Tracer([slow], ring_capacity=8, interval_s=0.01) as tracer:
        job = Job(tracer)
        for _ in range(100):
            job.step()
        release.set()
        tracer.flush()
        lost = tracer.losses()["ring_full"]
        assert lost >= 100 - 8 - 50  # one drain cycle may have emptied the ring in between
        assert len(tracer.steps()) + lost == 100
        job.step()
    (told,) = [message for message in caplog.messages if "ring_full" in message]
    assert "pass Tracer(ring_capacity=...)" in told
    assert slow.batches[-1].losses == {"ring_full": lost}


def test_a_log_that_raises_costs_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the drain wait for the tracer's lock, which whoever starts or closes it holds."""
    with Tracer(ring_capacity=8, on_anomaly="warn") as tracer, tracer._lock:
        job = Job(tracer)
        monkeypatch.setattr(drain.logger, "warning", lambda *_: 1 / 0)
        tracer.push(Loss("stamp_failed", "no clock"))
        job.step()
        assert tracer.flush(10)
        assert (len(tracer.steps()), tracer.losses()["stamp_failed"]) == (1, 1)


def test_calls_in_flight_at_close_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A future that never completes is a record lost, with a fix."""
    operations = [FakeOperation(wire_bytes=4), FakeOperation(wire_bytes=4)]
    tracer = Tracer()
    hook = trace(hook_of(operations), tracer=tracer)
    for bucket in buckets_of(2):
        hook(None, bucket)
    operations[0].complete()
    tracer.close()
    assert tracer.losses() == {"unfinished": 1}
    assert "close it after the last backward pass has returned" in caplog.text
    ((step, buckets),) = tracer._recent.steps()
    assert (step.complete, len(buckets)) == (False, 1)


@pytest.mark.parametrize("error", [OSError("no space left"), SystemExit(3)], ids=repr)
def test_an_exporter_that_raises_is_disabled_once(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """The others go on, the failure is logged once with its fix, and the loss is counted."""
    bad, good = FakeExporter("bad", error=error), FakeExporter("good")
    with Tracer([bad, good]) as tracer:
        job = Job(tracer)
        for _ in range(3):
            job.step()
            tracer.flush()
        assert tracer.failures() == {"bad": 1}
        assert tracer.losses() == {"not_exported": 3}
    assert good.steps == [0, 1, 2]
    assert (bad.closed, good.closed) == (1, 1)
    (told,) = [message for message in caplog.messages if "bad exporter" in message]
    assert f"{type(error).__name__}: {error}" in told
    assert told.endswith("fix the cause and restart to have it back")
    assert good.batches[-1].failures == {"bad": 1, "good": 0}


class Foreign:
    """Somebody else's exporter, with the two methods that are asked for, no name, and a defect."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.closed = False

    def export(self, batch: Batch) -> None:
        self.steps += [step.step for step, _ in batch.steps]

    def close(self) -> None:
        """Take note of it, and fail as others may."""
        self.closed = True
        raise OSError("gone")


class SilentError(Exception):
    """An error whose own text raises."""

    def __str__(self) -> str:
        raise ZeroDivisionError


class Equal(FakeExporter):
    """One that says that it is any other."""

    __hash__ = FakeExporter.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def test_an_exporter_whose_error_has_no_text_costs_no_other_one() -> None:
    """The others get the batch, and are closed."""
    silent, other = Equal(error=SilentError()), Equal()
    with Tracer([other, silent]) as tracer:
        Job(tracer).step()
        tracer.flush()
        assert [step.step for batch in other.batches for step, _ in batch.steps] == [0]
        assert tracer.losses() == {"not_exported": 1}
    assert (silent.closed, other.closed) == (1, 1)


def test_an_exporter_without_a_name_goes_by_its_class(caplog: pytest.LogCaptureFixture) -> None:
    """It and the others get their records; where it cannot close, they are closed all the same."""
    foreign, other = Foreign(), FakeExporter("other")
    tracer = Tracer([foreign, other])
    Job(tracer).step()
    tracer.close()
    assert foreign.steps == other.steps == [0]
    assert other.batches[0].failures == {"Foreign": 0, "other": 0}
    assert (other.closed, tracer.failures()) == (1, {"Foreign": 1})
    assert "the Foreign exporter could not close: OSError: gone" in caplog.text


def test_an_exporters_own_losses_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Under its name; what cannot be read for once stays as it was.  It says them itself."""
    exporter = FakeExporter("file")
    with Tracer([exporter], error_every=0) as tracer:
        job = Job(tracer)
        found = []
        for lost in ({"buckets": 3}, None, {"buckets": 4}):
            exporter.lost = lost  # type: ignore[assignment]
            job.step()
            assert tracer.flush()
            found.append(exporter.batches[-1].losses)
        assert tracer.losses() == {"file_buckets": 4}
    assert found == [{"file_buckets": 3}, {"file_buckets": 3}, {"file_buckets": 4}]
    assert caplog.text == ""


def test_what_is_no_exporter_is_refused() -> None:
    """When it is given, with what to pass."""
    wanted = "pass a list of exporters, such as"
    for one in (None, "abc", 3, Foreign):
        with pytest.raises(TypeError, match=f"is no exporter; {wanted}"):
            Tracer([FakeExporter(), one])  # type: ignore[list-item]
    for wrong in ("abc", None, FakeExporter()):
        with pytest.raises(TypeError, match=wanted):
            Tracer(exporters=wrong)  # type: ignore[arg-type]


class Measuring(Foreign):
    """What hooktrace measures a job with."""

    measures_the_job = True


def test_a_measured_job_exports_nothing_that_its_script_asks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What it was given is closed; hooktrace's own stays, and all in a job as users start it."""
    given, own = Foreign(), Measuring()
    assert base.redirected([own, given]) == (own, given)
    assert not given.closed
    monkeypatch.setattr(base, "is_measured", True)
    assert base.redirected([own, given]) == (own,)
    assert (given.closed, own.closed) == (True, False)
    assert "could not be closed" in caplog.text
