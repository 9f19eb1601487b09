"""A job of two ranks that trains until a file appears: ``torchrun ... job.py FILE``.

``HOOKTRACE_*`` says where its records go.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace


def main(end: Path) -> None:
    """Train; all ranks learn from rank 0 that the file is there."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.5)
    hooktrace.instrument(ddp, hooktrace.hooks.fp16_compress_hook, model="net")
    ended = torch.zeros(())
    while not ended:
        ddp(torch.randn(16, 256)).square().mean().backward()
        ended.fill_(end.exists())
        dist.broadcast(ended, 0)
    hooktrace.default_tracer().close()
    del ddp
    hooktrace.shutdown()


main(Path(sys.argv[1]))
