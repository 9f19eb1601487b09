"""A training that ``hooktrace tune`` is tried on: ``tune_script.py FOLDER [--own-hook fp16] ...``.

Writes how many steps each start made, by rank, the median mean of five of them, as a turn's, and
what its learning rate was at the end.
"""

import argparse
import gc
import json
import os
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from hooktrace.hooks.catalogue import catalogue

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--own-hook", choices=["fp16"])
parser.add_argument("--kind", choices=["ddp", "fsdp2", "none"], default="ddp")
parser.add_argument("--no-half-on", type=int, default=-1)
parser.add_argument("--register-at", type=int, default=0)
parser.add_argument("--join", action="store_true")
parser.add_argument("--no-root", action="store_true")
parser.add_argument("--raise-at", type=int, default=-1)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--hook", help="One of hooktrace's, by name.")
parser.add_argument("--cap", type=float)
options = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
linear = (nn.Linear(options.width, options.width) for _ in range(options.layers))
model = nn.Sequential(*(part for layer in linear for part in (layer, nn.ReLU())))
small = nn.Linear(4, 4)
if options.kind != "none":
    small = DistributedDataParallel(small)  # which nobody tunes
if options.kind == "ddp":
    teacher = DistributedDataParallel(nn.Linear(options.width, 8 * options.width))  # never trained
    ddp = DistributedDataParallel(model, bucket_cap_mb=options.cap)
elif options.kind == "fsdp2":
    for part in model[::2]:
        fully_shard(part)
    ddp = model if options.no_root else fully_shard(model)
else:
    ddp = model
for entry in (one for one in catalogue() if one.name == options.hook):
    ddp.register_comm_hook(entry.make_state(None, **entry.check_options), entry.hook)
if rank == options.no_half_on:
    to = torch.Tensor.to

    def only_whole(self: torch.Tensor, *args: object, **more: object) -> torch.Tensor:
        """Cast, as a device does that has no half precision."""
        if torch.float16 in args:
            raise RuntimeError("no half precision here")
        return to(self, *args, **more)

    torch.Tensor.to = only_whole
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=50)
torch.manual_seed(rank)
step, begins = 0, [time.perf_counter_ns()]


uneven = ddp.join() if options.join else nullcontext()
try:
    with uneven:
        for step in range(options.steps):
            if step == options.raise_at and os.environ.get("HOOKTRACE_TUNING"):
                raise ValueError(f"no data at step {step}")
            if step == options.register_at and options.own_hook == "fp16":
                ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
            small(torch.randn(2, 4)).sum().backward()
            loss = ddp(torch.randn(options.batch, options.width)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            begins.append(time.perf_counter_ns())
            if rank == 0 and step % 50 == 49:
                torch.save(model.state_dict(), options.folder / "checkpoint.pt")
finally:
    told = {"steps": step, "lr": schedule.get_last_lr()[0], "rank": rank}
    took = [b - a for a, b in pairwise(begins)]
    turns = [fmean(took[i : i + 5]) for i in range(8, len(took) - 4, 5)]
    told["step_ns"] = median(turns) if turns else None
    (options.folder / f"{os.getpid()}.json").write_text(json.dumps(told))
# Without this order a gloo process aborts now and then when it ends.
dist.barrier()
if options.kind == "ddp":
    del teacher
del ddp, small
gc.collect()
dist.destroy_process_group()
