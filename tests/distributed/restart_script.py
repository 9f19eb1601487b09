"""One rank of a job that torchrun starts twice: ``restart_script.py FOLDER``.

In its first start rank 1 does not come to a step that is checked, so that hooktrace ends all ranks.
In its second one it makes tracers again and again, over process groups.  Rank 0 leaves in FOLDER
what all ranks answered over the channel, at each time; the first start leaves its records there.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import TCPStore
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.exporters import RecordFileExporter
from tests.ranks.channel.jobs import ask

LATE_S = 3.0
DEADLINE_S = 60.0
EVERY = 5


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
    """Begin a group and a tracer, find all ranks, train at first, and end both."""
    forget_torchs_addresses(f"{start}/{number}")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if (start, number, rank) == ("1", 1, 1):
        time.sleep(LATE_S)
    end = time.monotonic() + DEADLINE_S
    exporters = [RecordFileExporter(folder)] if start == "0" else []
    with Tracer(exporters, error_every=EVERY, hang_after_s=2, on_hang="abort") as tracer:
        tracer.start()
        channel = tracer._channel
        assert channel is not None
        channel.handlers["who"] = lambda _: f"{start} {number}".encode()
        found: list[str] = []
        while rank == 0 and len(found) < 2 and time.monotonic() < end:
            found = [answer.decode() for answer in ask(channel, "who", b"", 5.0).answers.values()]
        if rank == 0:
            (folder / f"{start}-{number}.json").write_text(json.dumps(found))
        dist.barrier()
        if number == 0:
            train(tracer, start, rank)
    gc.collect()
    dist.destroy_process_group()


def train(tracer: Tracer, start: str, rank: int) -> None:
    """Make 20 steps, some of which are checked."""
    ddp = DistributedDataParallel(nn.Linear(8, 8))
    hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
    for step in range(20):
        if (start, rank, step) == ("0", 1, 2 * EVERY):
            time.sleep(100)
        ddp(torch.ones(2, 8)).sum().backward()
    sys.stderr.write(f"20 steps in start {start}\n")


if __name__ == "__main__":
    for count in range(3):
        turn(Path(sys.argv[1]), os.environ["TORCHELASTIC_RESTART_COUNT"], count)
