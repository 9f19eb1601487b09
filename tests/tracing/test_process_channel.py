"""The channel that a process's tracers share: from the first to the last, and by whose clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.control.address import address_path
from hooktrace.records import Batch, ClockRecord
from hooktrace.tracing import process_channel
from hooktrace.tracing.hangs import TracerHangs
from hooktrace.tracing.models import TracedModels
from tests.exporters.records_sample import make_run, make_step
from tests.ranks.channel.jobs import wait_for

CLOCK = ClockRecord(time_ns=1, offset_ns=2, uncertainty_ns=3, round_trip_ns=6, pings=1)


class Tracing:
    """What the channel needs of a tracer."""

    align_clocks = True

    def __init__(self) -> None:
        self.clock = time.perf_counter_ns
        self.logdirs: list[Path] = []
        self.records: list[object] = []
        self.push = self.records.append
        self.listeners: list[Callable[[Batch], None]] = []
        self.hear = self.listeners.append
        self.models = TracedModels()
        self.hang_watch = TracerHangs(self, None, "record")

    def bucket_durations(self, model: str) -> list[int]:
        return []

    def flush(self, timeout_s: float) -> bool:
        return True

    def clock_offset(self, host_ns: int) -> tuple[int, int] | None:
        return 0, 0


def test_it_lasts_from_the_first_tracer_to_the_last() -> None:
    """Closing one twice ends nothing of the other's."""
    first, second = Tracing(), Tracing()
    channel = process_channel.join(first)
    assert channel is not None
    assert process_channel.join(second) is channel
    process_channel.leave(first)
    process_channel.leave(first)
    assert channel.ask("nobody", b"", 20.0).answers == {}
    process_channel.leave(second)
    assert wait_for(lambda: not channel._thread.is_alive())
    another = process_channel.join(first)
    assert another is not channel
    process_channel.leave(first)


def test_each_tracer_tells_the_job_of_its_steps() -> None:
    """Those of two are told apart, and one that has left tells no more."""
    first, second = Tracing(), Tracing()
    for one in (first, second):
        process_channel.join(one)
        one.listeners[0](Batch(run=make_run(), steps=(make_step(3),)))
    view = process_channel._shared.view
    assert view is not None
    assert [part.knows("net") for part in view._parts] == [True, False]
    process_channel.leave(first)
    assert [part.knows("net (tracer 2)") for part in view._parts] == [True]
    process_channel.leave(second)
    assert process_channel._shared.view is None


def test_measurements_go_to_tracers_with_that_clock() -> None:
    """A clock of one's own is compared with nobody's, unless it is the first one here."""
    first, other, unaligned = Tracing(), Tracing(), Tracing()
    other.clock = time.monotonic_ns
    unaligned.align_clocks = False
    for one in (first, other, unaligned):
        process_channel.join(one)
    process_channel._shared.take(CLOCK)
    for one in (first, other, unaligned):
        process_channel.leave(one)
    assert (first.records, other.records, unaligned.records) == ([CLOCK], [], [])


def test_where_the_hub_is_is_not_written_once_it_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing is on a thread of its own, which may be late; the file would stay for ever."""
    late: list[Callable[[], None]] = []

    async def aside(work: Callable[[], None], needs: str) -> None:
        late.append(work)

    monkeypatch.setattr(process_channel, "aside", aside)
    user = Tracing()
    user.logdirs = [tmp_path]
    for is_there in (True, False):
        process_channel.join(user)
        assert wait_for(lambda: late)
        if not is_there:
            process_channel.leave(user)
        late.pop()()
        assert address_path(tmp_path).exists() == is_there
        process_channel.leave(user)
        late.clear()


def test_one_that_cannot_begin_is_said_and_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the system gives no thread."""

    def fail(_: Channel) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Channel, "start", fail)
    user = Tracing()
    assert process_channel.join(user) is None
    process_channel.leave(user)
    assert "no channel to the others (RuntimeError: can't start new thread)" in caplog.text
