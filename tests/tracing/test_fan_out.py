"""Exporters that fail, and what they lose."""

from __future__ import annotations

import pytest

from hooktrace import Tracer
from tests.fakes import FakeExporter, Job


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
