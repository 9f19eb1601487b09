"""What is lost is counted, and told once."""

from __future__ import annotations

import threading

import pytest

from hooktrace import Tracer, trace
from hooktrace.records import Batch
from hooktrace.tracing import drain
from hooktrace.tracing.drain import redirected
from tests.fakes import FakeExporter, FakeOperation, Job, buckets_of, hook_of


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
    assert redirected([own, given]) == (own, given)
    assert not given.closed
    monkeypatch.setattr(drain, "is_measured", True)
    assert redirected([own, given]) == (own,)
    assert (given.closed, own.closed) == (True, False)
    assert "could not be closed" in caplog.text
