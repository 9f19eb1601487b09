"""A job whose ranks are channels in one process: they meet in a store, over loopback.

``python -m tests.ranks.channel.jobs RANK SIZE HOST PORT``: one rank, on its own, of a job whose
store is at HOST and PORT.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch.distributed import HashStore, TCPStore

from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.messages import Member
from hooktrace.ranks.channel.node import Answers
from hooktrace.ranks.channel.process import member_of
from hooktrace.records import ClockRecord

S = 1_000_000_000

DEADLINE_S = 60.0
"""What happens at once as a rule has that long, on a busy machine."""


def wait_for(reached: Callable[[], object], within_s: float = DEADLINE_S) -> bool:
    end = time.monotonic() + within_s
    while not reached():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def ask(channel: Channel, name: str, argument: bytes, timeout_s: float) -> Answers[bytes]:
    """Ask a rank and all below it, from another thread than the channel's."""
    asked = asyncio.run_coroutine_threadsafe(
        channel.gather(name, argument, timeout_s), channel._loop
    )
    return asked.result(timeout_s + 1)


def has_parent(channel: Channel) -> bool:
    return channel.parent is not None and channel.parent.is_there


class Job:
    """``size`` ranks; each answers ``who`` by its rank and what it is asked.

    ``hosts``: a letter for each rank; all on one host where it is empty.
    """

    def __init__(
        self, size: int, *, ahead_ns: int = 0, hosts: str = "", begun: bool = True
    ) -> None:
        self.size = size
        self.hosts = hosts or "h" * size
        self.store: Any = HashStore()
        self.clocks: dict[int, list[ClockRecord]] = defaultdict(list)
        self.ranks = [self.begin(rank, rank * ahead_ns) for rank in range(size * begun)]

    def begin(self, rank: int, ahead_ns: int = 0) -> Channel:
        channel = Channel(
            Member(rank, os.getpid(), f"host of {rank}", self.hosts[rank]),
            self.size,
            self.store,
            lambda: time.perf_counter_ns() + ahead_ns,
            self.clocks[rank].append,
        )
        channel.handlers["who"] = lambda argument: b"%d %b" % (rank, argument)
        channel.start()
        return channel

    def __enter__(self) -> Job:
        """Wait until all ranks are below rank 0, and have been told so: then they report."""
        hub, *others = self.ranks
        assert wait_for(lambda: len(hub.roster) == self.size and all(map(has_parent, others)))
        return self

    def __exit__(self, *_: object) -> None:
        for channel in reversed(self.ranks):
            channel.close()

    def measured(self, rank: int) -> list[ClockRecord]:
        """Return what a rank measured by the pings to a new parent, not by one beat."""
        return [record for record in self.clocks[rank] if record.pings > 1]

    def abort(self, rank: int, *, entirely: bool = False) -> None:
        """Let a rank's connections break off without a word; ``entirely``: its thread ends too."""
        channel = self.ranks[rank]
        ended = channel._thread

        def break_off() -> None:
            channel.children.close()
            for connection in (*channel.children.connections(), channel.parent):
                if connection is not None:
                    connection.transport.abort()
            if entirely or rank:
                channel._ended.set()

        channel.run(break_off)
        ended.join(10)


def main(rank: int, size: int, host: str, port: int) -> None:
    """Be a rank until the input ends; for each line of it ask all below, and print what came.

    Who answers, the others' states, whether it is the hub.
    """
    store = TCPStore(host, port, size, is_master=rank == 0, wait_for_workers=False)
    me = member_of(rank, os.getpid())
    channel = Channel(me, size, store, time.perf_counter_ns, lambda _: None)
    channel.handlers["who"] = lambda _: b""
    channel.start()
    for _ in sys.stdin:
        found = ask(channel, "who", b"", 2.0)
        facts = {
            "is_hub": channel.is_hub,
            "answers": sorted(found.answers),
            "silent": {number: silent.state for number, silent in found.silent.items()},
        }
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()
    channel.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
