"""How a channel ends, whatever else hangs, and what its process's children keep: nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import FileStore

from hooktrace.ranks.channel.channel import THREAD_NAME, Channel
from tests.ranks.channel import rank_process
from tests.ranks.channel.jobs import DEADLINE_S, Job, ask, has_parent, wait_for
from tests.ranks.channel.rank_process import HangingStore, channel_in
from tests.ranks.channel.strangers import Stranger

CLOSE_S = 1.0


@contextmanager
def process(what: str, file: Path, rank: int, size: int = 2) -> Iterator[subprocess.Popen[str]]:
    """Run a rank beside this process, and end it."""
    command = [sys.executable, rank_process.__file__, what, str(file), str(rank), str(size)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def printed_by(running: subprocess.Popen[str]) -> dict[str, Any]:
    assert running.stdout is not None
    facts: dict[str, Any] = json.loads(running.stdout.readline())
    return facts


def close(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> float:
    """Close a channel; returns for how long at most that waited for its thread, s."""
    waited_s: list[float] = []
    join = channel._thread.join

    def joined(timeout: float) -> None:
        waited_s.append(timeout)
        join(timeout)

    monkeypatch.setattr(channel._thread, "join", joined)
    channel.close()
    return sum(waited_s)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def channels() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def test_it_ends_where_the_store_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once; the thread that asked the store is lost, and there are never more than a few."""
    before = descriptors()
    for rank in (0, 1):
        channel = channel_in(HangingStore(), rank, 2)
        assert close(channel, monkeypatch) < CLOSE_S
        assert wait_for(lambda: not channel._thread.is_alive())  # noqa: B023  # called at once
    assert descriptors() <= before


@pytest.mark.slow
def test_a_process_ends_where_the_store_hangs(tmp_path: Path) -> None:
    """Without a word, though nobody closed the channel."""
    with process("hanging", tmp_path / "store", 1) as running:
        _, error = running.communicate(timeout=120)
        assert (running.returncode, error) == (0, "")


def test_it_ends_where_the_loop_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who closes waits for a moment; the thread ends when it can."""
    before = descriptors()
    job = Job(2)
    go_on = threading.Event()
    with job:
        job.ranks[1].run(lambda: go_on.wait(20))
        assert close(job.ranks[1], monkeypatch) < CLOSE_S
        assert job.ranks[1]._thread.is_alive()
        go_on.set()
    assert wait_for(lambda: channels() == [])
    assert wait_for(lambda: descriptors() <= before)


def test_it_ends_where_the_hub_is_stopped_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was still to be sent is dropped."""
    before = descriptors()
    with process("stay", tmp_path / "store", 0) as hub:
        printed_by(hub)
        channel = channel_in(FileStore(str(tmp_path / "store"), 2), 1, 2)
        assert wait_for(lambda: has_parent(channel))
        os.kill(hub.pid, signal.SIGSTOP)
        for _ in range(5):
            channel.report("much", bytes(4 << 20))
        assert close(channel, monkeypatch) < CLOSE_S
        assert wait_for(lambda: not channel._thread.is_alive())
        os.kill(hub.pid, signal.SIGCONT)
    assert wait_for(lambda: descriptors() <= before)


def test_strangers_are_let_go_of_at_the_end() -> None:
    """Nobody else closes their descriptors."""
    before = descriptors()
    with Job(2) as job:
        strangers = [Stranger(job.ranks[0], b"") for _ in range(5)]
        assert wait_for(lambda: len(job.ranks[0].children.connections()) == 6)
    for stranger in strangers:
        assert stranger.is_ended()
        stranger.socket.close()
    assert wait_for(lambda: descriptors() <= before)


def test_what_all_are_told_last_arrives_before_the_end() -> None:
    """Of a hub that ends its process for a hang, too."""
    with Job(3) as job:
        heard: list[bytes] = []
        job.ranks[2].notice_handlers["said"] = heard.append
        job.ranks[0].tell("said", b"the end")
        job.ranks[0].close()
        assert wait_for(lambda: heard == [b"the end"])


def test_one_that_has_ended_may_be_told_and_closed_again() -> None:
    """Nothing comes of it."""
    with Job(1) as job:
        assert ask(job.ranks[0], "who", b"", DEADLINE_S).answers == {0: b"0 "}
        job.ranks[0].close()
        job.ranks[0].tell("said", b"")
        job.ranks[0].report("seen", b"")
        job.ranks[0].close()


def test_where_there_is_no_thread_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's limit, as users of large machines meet it."""

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = descriptors()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RuntimeError, match="new thread"):
        channel_in(None, 0, 1)
    assert descriptors() <= before


@pytest.mark.timeout(90)
def test_workers_of_a_killed_rank_keep_none_of_its_connections(tmp_path: Path) -> None:
    """The hub sees while they live on that it is gone, and nobody listens in its place."""
    store = tmp_path / "store"
    hub: Channel = channel_in(FileStore(str(store), 2), 0, 2)
    try:
        with process("workers", store, 1) as parent:
            facts = printed_by(parent)
            assert ask(hub, "who", b"", DEADLINE_S).answers == {0: b"0", 1: b"1"}
            parent.kill()
            parent.wait()  # its connection may be closed before where it listens
            assert wait_for(lambda: 1 in hub.lost)
            for pid in facts["workers"]:
                os.kill(pid, 0)  # they live on, for a while
            for place in facts["places"]:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(tuple(place), 2)
            for pid in facts["workers"]:
                os.kill(pid, signal.SIGKILL)
    finally:
        hub.close()
