"""What is lost is counted, and told once."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.records import Batch, ClockRecord
from hooktrace.testing import FakeBucket
from tests.fakes import FakeExporter, FakeOperation, Job, hook_of


def test_an_overflowing_ring_counts_and_reports_once(caplog: pytest.LogCaptureFixture) -> None:
    """Calls that do not fit are lost, counted and reported once; training sees nothing of it."""
    release = threading.Event()

    class Blocking(FakeExporter):
        def export(self, batch: object) -> None:
            release.wait(30)
            super().export(batch)

    slow = Blocking()
    with Tracer([slow], ring_capacity=8, interval_s=0.01) as tracer:
        job = Job(tracer)
        for _ in range(100):
            job.step()
        release.set()
        tracer.flush()
        lost = tracer.losses()["ring_full"]
        assert lost >= 100 - 8 - 50  # one drain cycle may have emptied the ring in between
        assert len(tracer.steps()) + lost == 100
        for _ in range(3):
            job.step()
    told = [r.getMessage() for r in caplog.records if "ring_full" in r.getMessage()]
    assert len(told) == 1
    assert "pass Tracer(ring_capacity=...)" in told[0]
    assert slow.batches[-1].losses == {"ring_full": lost}


def test_calls_in_flight_at_close_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A future that never completes is a record lost, with a remedy."""
    operations = [FakeOperation(wire_bytes=4), FakeOperation(wire_bytes=4)]
    tracer = Tracer()
    hook = trace(hook_of(operations), tracer=tracer)
    hook(None, FakeBucket([torch.zeros(4)], index=0, is_last=False))
    hook(None, FakeBucket([torch.zeros(4)], index=1, is_last=True))
    operations[0].complete()
    tracer.close()
    assert tracer.losses() == {"unfinished": 1}
    assert "close it after the last backward pass has returned" in caplog.text
    ((step, buckets),) = tracer._recent.steps()
    assert (step.complete, len(buckets)) == (False, 1)


def test_an_exporter_that_raises_is_disabled_once(caplog: pytest.LogCaptureFixture) -> None:
    """The others go on, the failure is logged once with its remedy, and the loss is counted."""
    bad, good = FakeExporter("bad", error=OSError("no space left")), FakeExporter("good")
    with Tracer([bad, good]) as tracer:
        job = Job(tracer)
        for _ in range(3):
            job.step()
            tracer.flush()
        assert tracer.failures() == {"bad": 1}
        assert tracer.losses() == {"not_exported": 3}
    assert good.steps == [0, 1, 2]
    assert (bad.closed, good.closed) == (1, 1)
    told = [r.getMessage() for r in caplog.records if "bad exporter" in r.getMessage()]
    assert len(told) == 1
    assert "OSError: no space left" in told[0]
    assert told[0].endswith("fix the cause and restart to have it back")
    assert good.batches[-1].failures == {"bad": 1, "good": 0}


def test_an_exporters_own_losses_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """What an exporter gives up stands beside what the tracer lost, under the exporter's name."""
    exporter = FakeExporter("file")
    exporter.lost = {"buckets": 3}
    with Tracer([exporter]) as tracer:
        Job(tracer).step()
        tracer.flush()
        assert tracer.losses() == {"file_buckets": 3}
    assert exporter.batches[0].losses == {"file_buckets": 3}
    assert caplog.text == ""  # the exporter has said it, with its remedy


def test_an_exporter_that_cannot_close_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The others are closed all the same."""

    class Stuck(FakeExporter):
        def close(self) -> None:
            raise OSError("gone")

    good = FakeExporter("good")
    tracer = Tracer([Stuck("stuck"), good])
    Job(tracer).step()
    tracer.close()
    assert good.closed == 1
    assert tracer.failures() == {"stuck": 1}
    assert "the stuck exporter could not close: OSError: gone" in caplog.text


def test_an_exporter_that_exits_cannot_end_the_drain(caplog: pytest.LogCaptureFixture) -> None:
    """SystemExit is an exporter's failure like any other, and the others get their records."""
    good = FakeExporter("good")
    with Tracer([FakeExporter("bad", error=SystemExit(3)), good]) as tracer:  # type: ignore[arg-type]
        job = Job(tracer)
        for _ in range(2):
            job.step()
            assert tracer.flush(20)
        assert tracer.failures() == {"bad": 1}
    assert good.steps == [0, 1]
    assert good.closed == 1


class Foreign:
    """An exporter of somebody else's, with the two methods that are asked for."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def export(self, batch: Batch) -> None:
        self.steps += [step.step for step, _ in batch.steps]

    def close(self) -> None:
        """Do nothing."""


class NameRaises(Foreign):
    @property
    def name(self) -> str:
        raise RuntimeError("no name")


class NameIsNone(Foreign):
    name = None


class LostIsANumber(Foreign):
    lost = 0


class LostRaises(Foreign):
    @property
    def lost(self) -> dict[str, int]:
        raise RuntimeError("no count")


class LostIsWords(Foreign):
    lost: ClassVar = {"batches": "many"}


@pytest.mark.parametrize("kind", [Foreign, NameRaises, NameIsNone])
def test_an_exporter_without_a_name_goes_by_its_class(kind: type[Foreign]) -> None:
    """It and the others get their records."""
    foreign, other = kind(), FakeExporter("other")
    with Tracer([foreign, other]) as tracer:
        Job(tracer).step()
        assert tracer.flush()
        assert tracer.losses() == {}
    assert foreign.steps == other.steps == [0]
    assert other.batches[0].failures == {kind.__name__: 0, "other": 0}


@pytest.mark.parametrize("kind", [LostIsANumber, LostRaises, LostIsWords])
def test_an_exporter_whose_losses_cannot_be_read(
    kind: type[Foreign], caplog: pytest.LogCaptureFixture
) -> None:
    """It and the others get their records, and one warning says what the attribute has to be."""
    foreign, other = kind(), FakeExporter("other")
    with Tracer([foreign, other], error_every=0) as tracer:
        job = Job(tracer)
        for _ in range(3):
            job.step()
            tracer.push(
                ClockRecord(time_ns=1, offset_ns=2, uncertainty_ns=3, round_trip_ns=6, pings=1)
            )
            assert tracer.flush()
        assert len(tracer.clocks()) == 3
        assert tracer.losses() == {}
    assert foreign.steps == other.steps == [0, 1, 2]
    [told] = [r.getMessage() for r in caplog.records]
    assert told.startswith(f"what the {kind.__name__} exporter lost is unknown")
    assert told.endswith("it has to be a mapping from what was lost to how many")


def test_losses_that_were_known_stay_known() -> None:
    """A mapping that cannot be read for once, as while another thread grows it, is no zero."""
    exporter = FakeExporter("file")
    exporter.lost = {"buckets": 3}
    with Tracer([exporter]) as tracer:
        job = Job(tracer)
        found = []
        for lost in ({"buckets": 3}, None, {"buckets": 4}):
            exporter.lost = lost  # type: ignore[assignment]
            job.step()
            assert tracer.flush()
            found.append(exporter.batches[-1].losses)
    assert found == [{"file_buckets": 3}, {"file_buckets": 3}, {"file_buckets": 4}]


def test_what_is_no_exporter_is_refused() -> None:
    """When it is given, with what to pass."""
    wanted = "pass a list of exporters, such as"
    for one in (None, "abc", 3, Foreign):
        with pytest.raises(TypeError, match=f"is no exporter; {wanted}"):
            Tracer([FakeExporter(), one])  # type: ignore[list-item]
    for wrong in ("abc", None, FakeExporter()):
        with pytest.raises(TypeError, match=wanted):
            Tracer(exporters=wrong)  # type: ignore[arg-type]
