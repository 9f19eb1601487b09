"""A rank that makes tracers again and again, over process groups; rank 1 raises in its first start.

``restart_script.py FOLDER``: rank 0 leaves there what all ranks answered at last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch.distributed as dist
from torch.distributed import TCPStore

from hooktrace import Tracer
from tests.ranks.channel.jobs import ask

LATE_S = 3.0
DEADLINE_S = 60.0


def forget_torchs_addresses(turn: str) -> None:
    """Delete what the group before left for gloo: torch's ranks may connect to it, and fail.

    What hooktrace left stays.
    """
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*place, is_master=False)
    if os.environ["RANK"] == "0":
        for key in store.list_keys():
            if "default_pg" in key and "hooktrace" not in key:
                store.delete_key(key)
        store.set(f"forgotten/{turn}", "")
    store.wait([f"forgotten/{turn}"])


def turn(folder: Path, start: str, number: int) -> None:
    """Begin a group and a tracer, find all ranks, and end both."""
    forget_torchs_addresses(f"{start}/{number}")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if (start, number, rank) == ("1", 1, 1):
        time.sleep(LATE_S)
    end = time.monotonic() + DEADLINE_S
    with Tracer() as tracer:
        tracer.start()
        channel = tracer._channel
        assert channel is not None
        channel.handlers["who"] = lambda _: f"{start} {number}".encode()
        found: list[str] = []
        while rank == 0 and len(found) < 2 and time.monotonic() < end:
            found = [answer.decode() for answer in ask(channel, "who", b"", 5.0).answers.values()]
        if rank == 0:
            facts = {"found": found}
            (folder / f"{start}-{number}.json").write_text(json.dumps(facts))
        dist.barrier()
        if start == "0":
            if rank == 1:
                raise RuntimeError("once")
            time.sleep(60)
    dist.destroy_process_group()


if __name__ == "__main__":
    for count in range(3):
        turn(Path(sys.argv[1]), os.environ["TORCHELASTIC_RESTART_COUNT"], count)
