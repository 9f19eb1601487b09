"""A job of two ranks that trains until a file appears: ``torchrun ... job.py FILE``.

One model is under DDP, another one sharded.

``HOOKTRACE_*`` says where its records go.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import fsdp
from hooktrace.fsdp.hooks import bf16_reduce_scatter


def main(end: Path) -> None:
    """Train; all ranks learn from rank 0 that the file is there."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.5)
    hooktrace.instrument(ddp, hooktrace.hooks.fp16_compress_hook, model="net")
    sharded = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    for unit in sharded:
        fully_shard(unit)
    fsdp.trace(fully_shard(sharded), name="sharded", reduce_scatter=bf16_reduce_scatter())
    ended = torch.zeros(())
    while not ended:
        ddp(torch.randn(16, 256)).square().mean().backward()
        sharded(torch.randn(16, 64)).square().mean().backward()
        ended.fill_(end.exists())
        dist.broadcast(ended, 0)
    hooktrace.default_tracer().close()
    del ddp
    hooktrace.shutdown()


main(Path(sys.argv[1]))
