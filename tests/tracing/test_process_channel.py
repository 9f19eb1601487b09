"""The channel that a process shares, from its first tracer to the last; commands, and hangs."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from hooktrace import Tracer
from hooktrace.exporters import RecordFileExporter
from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.meeting import aside
from hooktrace.ranks.channel.messages import MOST_PAYLOAD, encode
from hooktrace.ranks.control import (
    MOST_STACKS,
    STACKS_AT_ONCE,
    Command,
    Done,
    address_path,
    decode_done,
)
from hooktrace.ranks.hang.messages import CallInFlight, ModelStatus
from hooktrace.records import ClockRecord
from hooktrace.records.errors import UsageError
from hooktrace.tracing import process_channel
from hooktrace.tracing.options import OnHang
from hooktrace.tracing.process_channel import TracerControl, _where
from tests.exporters.records_sample import make_hang
from tests.fakes import Job
from tests.ranks.channel.jobs import ask, wait_for

CLOCK = ClockRecord(time_ns=1, offset_ns=2, uncertainty_ns=3, round_trip_ns=6, pings=1)


def test_it_lasts_from_the_first_tracer_to_the_last() -> None:
    """Closing one twice ends nothing of the other's."""
    with Tracer() as third:
        with Tracer() as second:
            with Tracer() as first:
                first.start()
                second.start()
                channel = first._channel
                assert channel is not None
                assert second._channel is channel
            first.close()
            assert ask(channel, "nobody", b"", 20.0).answers == {}
        assert wait_for(lambda: not channel._thread.is_alive())
        third.start()
        assert third._channel is not channel


def test_measurements_go_to_tracers_with_that_clock() -> None:
    """A clock of one's own is compared with nobody's, unless it is the first one here."""
    own = Tracer(clock=time.monotonic_ns)
    with Tracer() as first, own as other, Tracer(align_clocks=False) as unaligned:
        users = first, other, unaligned
        for one in users:
            one.start()
        process_channel._shared.take(CLOCK)
        assert [CLOCK in one.clocks() for one in users] == [True, False, False]


def test_where_the_hub_is_is_not_written_once_it_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing is on a thread of its own, which may be late; the file would stay for ever."""
    late: list[Callable[[], None]] = []
    monkeypatch.setattr(process_channel, "call_aside", lambda work, _: late.append(work))
    for is_there in (True, False):
        with Tracer([RecordFileExporter(tmp_path)]) as user:
            user.start()
            assert wait_for(lambda: late)
            if not is_there:
                user.close()
            late.pop()()
            assert address_path(tmp_path).exists() == is_there
        late.clear()


def test_one_that_cannot_begin_is_said_and_training_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where the system gives no thread."""
    error = RuntimeError("can't start new thread")
    with Tracer() as user, mock.patch.object(Channel, "start", side_effect=error):
        user.start()
        assert user._channel is None
    assert "no channel to the others (RuntimeError: can't start new thread)" in caplog.text


S = 1_000_000_000
CALL = CallInFlight(
    model="net", hook="fp16", step=7, bucket=1, stage="wire", age_ns=31 * S, collective="all_gather"
)  # fmt: skip
SHORT, UNIT = replace(CALL, age_ns=S - 1), replace(CALL, unit="blocks.2 all-gather (forward)")


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ((SHORT,), ""),  # a collective is in flight most of the time
        ((replace(CALL, bucket=0, age_ns=2 * S), CALL), ", bucket 1 in wire all_gather for 31 s"),
        ((UNIT,), ", blocks.2 all-gather (forward) in wire all_gather for 31 s"),
    ],
)
def test_where_a_model_is(calls: tuple[CallInFlight, ...], said: str) -> None:
    """With what it has waited for longest, if that is worth a word; a unit by its name."""
    status = ModelStatus(model="net", hook="fp16", step=7, bucket=1, in_flight=calls)
    assert _where(status) == f"net (fp16) at step 7{said}"


def test_a_store_that_hangs_keeps_no_rank_from_answering() -> None:
    """However many threads wait for it: torch's store is not asked for what they are told."""

    async def answered() -> Done:
        go_on = threading.Event()
        held = [asyncio.ensure_future(aside(lambda: go_on.wait(20))) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError, match="torch's store has not answered for a while"):
            await aside(str)
        control = TracerControl(list, 0)
        done = decode_done(await control.carry_out(encode(Command(verb="status"))))
        go_on.set()
        await asyncio.gather(*held)
        return done

    assert asyncio.run(answered()) == Done(text="paused")


@pytest.fixture
def control(tmp_path: Path) -> Iterator[tuple[Job, TracerControl]]:
    """A job that has made four steps and keeps records, and what commands its rank."""
    with Tracer([RecordFileExporter(tmp_path)], error_every=0, align_clocks=False) as tracer:
        job = Job(tracer, 2)
        for _ in range(4):
            job.step()
        yield job, TracerControl(lambda: [tracer], 0)


def test_a_rank_that_is_paused_knows_its_step(control: tuple[Job, TracerControl]) -> None:
    """By which all ranks begin what they are asked for at the same one."""
    job, own = control
    assert own.do(Command(verb="pause")).steps == {"model0": 3}
    for _ in range(10):
        job.step()
    done = own.do(Command(verb="status"))
    assert (done.text, done.steps) == ("paused, model0 (local) at step 13", {"model0": 13})
    assert own.do(Command(verb="detail", number=5)).text == "model0: steps 14 to 18"


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (6, "model0: steps 6 to 8"),
        (3, "model0: steps 4 to 5"),
        (1, "model0: none, this rank is past steps 1 to 3; ask once more"),
    ],
)
def test_a_rank_that_is_asked_late_says_what_is_left(
    first: int, said: str, control: tuple[Job, TracerControl]
) -> None:
    """All ranks are told from which step on, and one that is busy may be past it when it hears."""
    command = Command(verb="detail", number=3, first={"model0": first})
    assert control[1].do(command).text == said


@pytest.mark.parametrize(
    ("rank", "asked", "said"),
    [
        (31, -1, "MainThread"),
        (32, -1, "left out; ask for one rank's: stacks 32"),
        (33, -1, ""),
        (33, 33, "MainThread"),
        (3, 33, ""),
    ],
)
def test_stacks_of_many_ranks_are_those_of_the_first(rank: int, asked: int, said: str) -> None:
    """One answer has bounds; the first rank that is left out says so."""
    found = Done()

    def ask_it() -> None:
        nonlocal found
        found = TracerControl(list, rank).do(Command(verb="stacks", rank=asked))

    asker = threading.Thread(target=ask_it)  # which is not shown itself
    asker.start()
    asker.join()
    assert said in found.text
    assert bool(said) == bool(found.text)
    assert STACKS_AT_ONCE * MOST_STACKS < MOST_PAYLOAD


def test_without_a_channel_a_command_says_why() -> None:
    """Nothing was traced yet."""
    wanted = pytest.raises(UsageError, match="begins with the first backward pass")
    with Tracer() as tracer, wanted:
        tracer.command("status")


def test_pauses_nest() -> None:
    with Tracer(channel=False) as tracer:
        with tracer.pause_watchdog():
            with tracer.pause_watchdog():
                assert tracer.hang_watch.paused
            assert tracer.hang_watch.paused
        assert not tracer.hang_watch.paused


HANG = replace(make_hang(7), hang=3, stacks=())


@pytest.mark.parametrize(
    ("on_hang", "speaks", "said"),
    [("record", True, 0), ("warn", True, 1), ("warn", False, 0)],
)
def test_record_and_log(
    on_hang: OnHang, speaks: bool, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is recorded in any case, and logged by default, by one rank of a host."""
    with Tracer(on_hang=on_hang) as tracer:
        tracer.start()
        tracer.hang_watch.hear_of_hang(HANG, speaks=speaks)
        assert tracer.hangs() == [HANG]
        names = lambda: {thread.name for thread in threading.enumerate()}  # noqa: E731
        assert wait_for(lambda: len(caplog.messages) == said)
        assert wait_for(lambda: "hooktrace-hang-warn" not in names())
    assert len(caplog.messages) == said
    for line in caplog.messages:
        assert re.fullmatch(
            r"\[rank 0, \d\d:\d\d:\d\d UTC\] hang: bucket 0 of step 7 .*; see docs/hangs.md#\w+",
            line,
        )


def test_dump_without_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing writes records: it goes to where the process is, and the log says so."""
    monkeypatch.chdir(tmp_path)
    with Tracer(on_hang="dump") as tracer:
        tracer.hang_watch.hear_of_hang(HANG, speaks=False)
        path = tmp_path / "hang003-rank00000.txt"
        assert wait_for(lambda: str(path) in caplog.text)
    text = path.read_text()
    assert text.startswith(f"{HANG.message}\n")
    assert "torch's Flight Recorder" in text
    assert "test_dump_without_records" in text
