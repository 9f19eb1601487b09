"""What may go wrong around training, and must not reach it."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress

import pytest
import torch

from hooktrace import Tracer, trace
from hooktrace.capture.clocks import EventPool
from hooktrace.probes import WireSample
from hooktrace.records import AnomalyRecord, Batch
from hooktrace.records.errors import HookError
from hooktrace.testing import FakeBucket
from hooktrace.tracing import settings
from hooktrace.tracing.assembler import Assembler
from tests.fakes import FakeExporter, FakeOperation, Job, hook_of


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
    assert good.batches[-1].failures == {"bad": 1}


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


def test_an_anomaly_comes_with_the_batch_of_its_step() -> None:
    """Of many steps in one cycle: an exporter that keeps or drops a step's detail needs it then."""
    release, blocked = threading.Event(), threading.Event()

    class Blocking(FakeExporter):
        def export(self, batch: Batch) -> None:
            super().export(batch)
            blocked.set()
            release.wait(30)

    exporter = Blocking()
    calls = iter(range(1000))

    def failing(state: object, bucket: FakeBucket) -> object:
        if next(calls) in {41, 300}:  # in another bucket each: an anomaly is told once a bucket
            raise ValueError("no")
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    with Tracer([exporter]) as tracer:
        job = Job(tracer, buckets=4)
        job.step()
        tracer._drain.wake()
        try:
            assert blocked.wait(30)
            job.hook = trace(failing, tracer=tracer)
            for _ in range(100):
                with suppress(HookError):
                    job.step()
        finally:
            release.set()
    first, second = (batch for batch in exporter.batches if batch.of(AnomalyRecord))
    for batch in (first, second):
        (anomaly,) = batch.of(AnomalyRecord)
        assert (anomaly.model, anomaly.step) in {(s.model, s.step) for s, _ in batch.steps}


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


def test_a_step_that_fails_is_closed_before_the_next() -> None:
    """A backward pass that stops after its first bucket gives an incomplete step, not timed."""
    with Tracer() as tracer:
        job = Job(tracer, buckets=2)
        job.step()
        job.hook(None, job.buckets[0])
        for _ in range(3):
            job.step()
        steps = tracer.steps()
        assert [(s.step, s.complete, s.bucket_count) for s in steps] == [
            (0, True, 2),
            (1, False, 1),
            (2, True, 2),
            (3, True, 2),
            (4, True, 2),
        ]
        assert [s.step for s in steps if s.period_ns is not None] == [3, 4]
        assert tracer.summary()[0].steps == 3


def test_a_copied_buffer_address_is_not_trusted() -> None:
    """A new model whose bucket lies where an old one's lay is not taken for the old one."""
    with Tracer() as tracer:
        job = Job(tracer)
        bucket = job.buckets[0]
        for _ in range(3):
            job.step()
        bucket._parameters = [torch.zeros(4)]
        bucket._buffer = bucket._buffer.detach()  # another tensor on the same memory
        for _ in range(3):
            job.step()
        assert [(s.model, s.step) for s in tracer.steps()] == [
            *[("model0", i) for i in range(3)],
            *[("model0#2", i) for i in range(3)],
        ]


def test_nothing_to_trace_is_said() -> None:
    """A call in place of the hook itself is the common mistake."""
    with (
        Tracer() as tracer,
        pytest.raises(TypeError, match=r"cannot trace a NoneType; pass the hook itself"),
    ):
        trace(None, tracer=tracer)  # type: ignore[arg-type]


def test_memory_is_bounded() -> None:
    """The store keeps the last steps only, by either bound."""
    with Tracer(keep_steps=10, keep_buckets=12) as tracer:
        job = Job(tracer, buckets=4)
        for _ in range(20):
            job.step()
        assert [s.step for s in tracer.steps()] == [17, 18, 19]
        assert len(tracer.buckets()) == 12


def test_models_that_follow_each_other_are_kept_apart() -> None:
    """A new model is not taken for a deleted one whose parameters' ids it got."""
    with Tracer() as tracer:
        job = Job(tracer)
        for size in range(1, 6):
            job.buckets = [FakeBucket([torch.zeros(size)])]
            job.parameters.clear()
            job.step()
            job.step()
        steps = [(s.model, s.step, s.generation) for s in tracer.steps()]
        names = ["model0", *(f"model0#{n}" for n in range(2, 6))]
        assert steps == [(name, step, 0) for name in names for step in range(2)]
        assert len(job.hook._layout.models) <= 2


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
    assert answers == [False]


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


def test_a_bad_rank_variable_costs_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that sets LOCAL_RANK to nothing does not stop the drain."""
    monkeypatch.setenv("LOCAL_RANK", "")
    with Tracer() as tracer:
        Job(tracer).step()
        assert len(tracer.steps()) == 1
        assert tracer.losses() == {}


def test_a_defect_in_the_drain_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The drain survives an error of its own, reports it once with its traceback, and goes on."""

    def broken(self: object, call: object) -> None:
        raise ZeroDivisionError

    with Tracer() as tracer:
        job = Job(tracer)
        with monkeypatch.context() as patch:
            patch.setattr("hooktrace.tracing.steps.StepGatherer.add", broken)
            for _ in range(2):
                job.step()
                assert tracer.flush()
        job.step()
        assert [s.step for s in tracer.steps()] == [2]
        assert tracer.losses() == {"internal_error": 2}
    assert caplog.text.count("please report this with the traceback") == 1


SCRIPT = """
import logging, os, sys
logging.basicConfig(level=logging.WARNING)
from hooktrace import Tracer
from tests.fakes import FakeExporter, Job

class Telling(FakeExporter):
    def export(self, batch):
        super().export(batch)
    def close(self):
        print("closed with steps", self.steps, flush=True)

tracer = Tracer([Telling()])
job = Job(tracer)
job.step()
job.step()
"""


def run_script(tail: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(tail)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_interpreter_exit_without_close() -> None:
    """Everything recorded is exported, and the process ends by itself."""
    run = run_script()
    assert (run.returncode, run.stdout) == (0, "closed with steps [0, 1]\n"), run.stderr


@pytest.mark.slow
def test_exit_with_an_exception_keeps_the_records() -> None:
    """A script that dies of its own error still exports, and keeps its exit code."""
    run = run_script("raise SystemExit(7)")
    assert (run.returncode, run.stdout) == (7, "closed with steps [0, 1]\n"), run.stderr


@pytest.mark.slow
def test_a_forked_child_exports_nothing_and_says_so() -> None:
    """The child's tracer keeps records in memory; the parent's exporter is told of its own only."""
    run = run_script(
        """
        tracer.flush()
        child = os.fork()
        if child == 0:
            job.step()
            print("child", [s.step for s in tracer.steps()], tracer.failures(), tracer.losses())
            tracer.close()
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        job.step()
        """
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "child [2] {'fake': 1} {'not_exported': 1}",
        "closed with steps [0, 1, 2]",
    ]
    assert run.stderr.count("make a new Tracer in the child") == 1


def test_unknown_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt variable is named, a bad value is left out, and training starts all the same."""
    monkeypatch.setenv("HOOKTRACE_PROMETHUS_PORT", "9464")
    monkeypatch.setenv("HOOKTRACE_PROMETHEUS_PORT", "http")
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "often")
    with caplog.at_level(logging.WARNING):
        assert settings.exporters_from_environment() == []
        assert settings.error_every_from_environment(100) == 100
    assert "HOOKTRACE_PROMETHUS_PORT is not a setting of hooktrace" in caplog.text
    assert "HOOKTRACE_PROMETHEUS_PORT=http has no effect" in caplog.text
    assert "HOOKTRACE_ERROR_EVERY=often has no effect: it is a number of steps" in caplog.text
    assert "HOOKTRACE_ERROR_EVERY is not a setting" not in caplog.text
    monkeypatch.setenv("HOOKTRACE_ERROR_EVERY", "0")
    assert settings.error_every_from_environment(100) == 0


def test_bad_arguments_of_a_tracer_are_named() -> None:
    """Before it opens anything."""
    with pytest.raises(ValueError, match="error_every=-1 counts steps; pass 0 for no probes"):
        Tracer(error_every=-1)
    with pytest.raises(ValueError, match="on_anomaly='shout' is not known; pass record, warn, ra"):
        Tracer(on_anomaly="shout")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="error='lokal' is not known; pass global or local"):
        Tracer(error="lokal")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "debug"), [("1", True), ("yes", True), ("0", False), ("", False)]
)
def test_the_environment_turns_debug_mode_on(
    value: str, debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OpenTelemetry's switch is read."""
    monkeypatch.setenv("HOOKTRACE_DEBUG", value)
    assert settings.debug_from_environment() == debug


def test_samples_of_steps_that_never_come_are_forgotten() -> None:
    """Their calls were lost."""
    assembler = Assembler(lambda reason, count: None, EventPool(torch.cuda.Event))
    for step in range(5000):
        assembler.add(WireSample("net", step, 0, 0, 0))
    assert len(assembler._samples) == 4096
    assert min(step for _, step in assembler._samples) == 5000 - 4096
