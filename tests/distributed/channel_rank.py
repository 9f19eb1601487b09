"""A rank that has the channel and nothing else: ``channel_rank.py RANK SIZE HOST PORT``.

HOST and PORT are those of the job's store.  For each line of its input it asks all below it, and
prints what came: who answers, the others' states, whether it is the hub.
"""

from __future__ import annotations

import json
import os
import sys
import time

from torch.distributed import TCPStore

from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.process import member_of
from tests.ranks.channel.jobs import ask


def main(rank: int, size: int, host: str, port: int) -> None:
    """Be a rank until the input ends."""
    store = TCPStore(host, port, size, is_master=rank == 0, wait_for_workers=False)
    channel = Channel(
        member_of(rank, os.getpid()), size, store, time.perf_counter_ns, lambda _: None
    )
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
