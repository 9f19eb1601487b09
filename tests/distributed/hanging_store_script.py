"""One of two ranks, which closes its tracer, and ends, while the job's store does not answer."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks


def main(rank: int, port: int, server: int) -> None:
    """Say whether it closed: what waits for the store would not come back before the deadline."""
    store = dist.TCPStore("127.0.0.1", port, 2, is_master=False, timeout=timedelta(seconds=1000))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    ddp = DistributedDataParallel(nn.Linear(8, 8))
    tracer = Tracer(error_every=5)
    hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
    for _ in range(30):
        ddp(torch.ones(2, 8)).sum().backward()
    dist.barrier()
    if rank == 0:
        os.kill(server, signal.SIGSTOP)
    dist.barrier()
    with mock.patch("hooktrace.ranks.channel.meeting._ANSWER_S", 1000.0):
        sys.stdout.write(str(tracer.close(100.0)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
