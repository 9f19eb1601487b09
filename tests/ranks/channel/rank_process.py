"""A rank in a process of its own: ``python rank_process.py WHAT FILE RANK SIZE``.

It meets the others in a ``FileStore``, prints what the test is to know, and stays until its input
ends.  WHAT: ``stay``; ``workers``: a data loader's, forked while the channel runs; ``hanging``: its
store never answers, and it ends at once without closing anything.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from torch.distributed import FileStore
from torch.utils.data import DataLoader, Dataset

from hooktrace.ranks.channel import membership
from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.messages import Member
from hooktrace.tracing import process_channel


class HangingStore:
    """A store whose requests block for ever, as one does whose host is gone."""

    def __getattr__(self, name: str) -> Any:
        if name in ("host", "underlying_store"):
            raise AttributeError(name)
        return lambda *_: threading.Event().wait()


class Slow(Dataset[int]):
    """Says by which process it is read, and then holds it."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index >= 2:
            time.sleep(60)
        return os.getpid()


def channel_in(store: Any, rank: int, size: int, host: str = "h") -> Channel:
    """Start a rank's channel."""
    member = Member(rank, os.getpid(), "h", host)
    channel = Channel(member, size, store, time.perf_counter_ns, lambda _: None)
    channel.handlers["who"] = lambda _: b"%d" % rank
    channel.start()
    return channel


def main(what: str, file: str, rank: int, size: int) -> None:
    """Be a rank."""
    store = HangingStore() if what == "hanging" else FileStore(file, size)
    if what == "workers":  # the first of a host of its own, which listens for others there
        membership.is_loopback = lambda _: False
    channel = channel_in(store, rank, size, "h" if what != "workers" else "w")
    if what == "hanging":
        time.sleep(0.3)
        return
    end = time.monotonic() + 20
    while not (channel.is_hub or channel.children.places):
        assert time.monotonic() < end
        time.sleep(0.01)
    workers: list[int] = []
    if what == "workers":
        process_channel._shared.channel = channel  # whose descriptors a fork closes
        loader = DataLoader(Slow(), num_workers=2, batch_size=1, multiprocessing_context="fork")
        batches = iter(loader)
        workers = [int(next(batches)), int(next(batches))]
    sys.stdout.write(json.dumps({"workers": workers, "places": channel.children.places}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    channel.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
