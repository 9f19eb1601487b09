"""How a channel ends, and what its process's children keep of it: nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from msgspec.structs import replace
from torch.distributed import FileStore

from hooktrace.ranks.channel import parent as finds_parent
from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.messages import Member
from hooktrace.ranks.channel.process import member_of, state_of
from hooktrace.tracing import process_channel
from tests.ranks.channel.jobs import DEADLINE_S, Job, ask, has_parent, wait_for

ROOT = Path(__file__).parents[3]


def test_it_ends_where_the_loop_is_busy() -> None:
    """The one who closes waits for a moment; the thread ends when it can, all descriptors too."""
    before = len(os.listdir("/proc/self/fd"))
    go_on = threading.Event()
    with Job(2) as job:
        job.ranks[1].run(lambda: go_on.wait(20))
        start = time.monotonic()
        job.ranks[1].close()
        assert time.monotonic() - start < 10
        assert job.ranks[1]._thread.is_alive()
        go_on.set()
        assert wait_for(lambda: not job.ranks[1]._thread.is_alive())
        job.ranks[1].report("said", b"")  # nothing comes of it
        job.ranks[1].close()
    assert wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_states_of_a_process() -> None:
    """Running, stopped, running again, gone; of another one of its number, or of a container."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        known = member_of(0, sleeper.pid)
        for number, state in ((0, "running"), (signal.SIGSTOP, "stopped")):
            sleeper.send_signal(number)
            assert wait_for(lambda: state_of(known) == state)  # noqa: B023  # called at once
        sleeper.send_signal(signal.SIGCONT)
        assert wait_for(lambda: state_of(known) == "running")
        assert state_of(replace(known, began=known.began - 1)) == "gone"
        assert state_of(replace(known, pids=known.pids + 1)) == "unknown"
        assert state_of(replace(known, began=0)) == "unknown"
        sleeper.kill()
        assert wait_for(lambda: state_of(known) == "gone")  # nobody has waited for it yet
        sleeper.wait()
        assert state_of(known) == "gone"


def begun(file: Path, rank: int, host: str) -> Channel:
    member = Member(rank, os.getpid(), host, host)
    channel = Channel(member, 2, FileStore(str(file), 2), time.perf_counter_ns, lambda _: None)
    channel.handlers["who"] = lambda _: b"%d" % rank
    channel.start()
    return channel


def main(file: str) -> None:
    """Be the first rank of a host, which listens there, with a worker that has its descriptors."""
    finds_parent.is_loopback = lambda _: False
    channel = begun(Path(file), 1, "w")
    assert wait_for(lambda: has_parent(channel))
    process_channel._shared = SimpleNamespace(channel=channel)  # whose descriptors a fork closes
    worker = os.fork()
    if worker:
        sys.stdout.write(f"{worker} {channel.children.places[0][1]}\n")
        sys.stdout.flush()
    time.sleep(60)


def test_workers_of_a_killed_rank_keep_none_of_its_connections(tmp_path: Path) -> None:
    """The hub sees while they live on that it is gone, and nobody listens in its place."""
    hub = begun(tmp_path / "store", 0, "h")
    command = [sys.executable, "-m", __name__, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        worker, port = map(int, parent.stdout.readline().split())
        try:
            assert ask(hub, "who", b"", DEADLINE_S).answers == {0: b"0", 1: b"1"}
            parent.kill()
            parent.wait()  # its connection may be closed before where it listens
            assert wait_for(lambda: 1 in hub.lost)
            with socket.socket() as line:
                assert line.connect_ex(("127.0.0.1", port)) != 0
        finally:
            os.kill(worker, signal.SIGKILL)  # it lives on
            hub.close()


if __name__ == "__main__":
    main(sys.argv[1])
