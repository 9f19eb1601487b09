"""One rank of a short job, in whose first start rank 1 does not come to where the probes meet.

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
from hooktrace.probes.model import ModelProbes
from tests.distributed.restart_script import forget_torchs_addresses


def waits(tracer: Tracer) -> bool:
    """Whether the next step is the one at which the ranks' probes meet."""
    (model,) = tracer.models.all()
    parts = model.sampling._parts
    (probes,) = [part for part in parts if isinstance(part, ModelProbes)]
    return probes._agreement.meeting == model.step + 1


def main() -> None:
    """Make 20 steps; probes have met by then."""
    start = os.environ["TORCHELASTIC_RESTART_COUNT"]
    forget_torchs_addresses(start)
    dist.init_process_group("gloo")
    ddp = DistributedDataParallel(nn.Linear(8, 8))
    tracer = Tracer(hang_after_s=2, on_hang="abort")
    hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
    for step in range(20):
        if start == "0" and step and dist.get_rank() == 1 and waits(tracer):
            time.sleep(100)
        ddp(torch.ones(2, 8)).sum().backward()
    sys.stderr.write(f"20 steps in start {start}\n")


if __name__ == "__main__":
    main()
