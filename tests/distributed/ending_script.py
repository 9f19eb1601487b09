"""One rank of a short job, in whose first start rank 1 does not come to a step that is checked.

All ranks are to be aborted then.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.restart_script import forget_torchs_addresses

EVERY = 5


def main() -> None:
    """Make 20 steps, some of which are checked."""
    start = os.environ["TORCHELASTIC_RESTART_COUNT"]
    forget_torchs_addresses(start)
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(nn.Linear(8, 8))
    tracer = Tracer(error_every=EVERY, hang_after_s=2, on_hang="abort")
    hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
    for step in range(20):
        if start == "0" and step == 2 * EVERY and dist.get_rank() == 1:
            time.sleep(100)
        ddp(torch.ones(2, 8)).sum().backward()
    sys.stderr.write(f"20 steps in start {start}\n")


if __name__ == "__main__":
    main()
