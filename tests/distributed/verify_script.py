"""A training script that knows nothing of verification: ``verify_script.py HOW STEPS``.

``plain``: DDP without a hook.  ``torch``: torch's fp16 hook.  ``own``: a tracer of its own, which
writes into ``mine``, and ``instrument``, before a second model that is none of the run's.
"""

import gc
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import hooktrace

HOW, STEPS = sys.argv[1], int(sys.argv[2])

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = (torch.nn.Linear(256, 256) for _ in range(8))
ddp = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
other = None
if HOW == "own":
    tracer = hooktrace.Tracer([hooktrace.exporters.RecordFileExporter("mine")], calibrate=True)
    hooktrace.instrument(ddp, tracer=tracer, model="Sequential")
    other = DistributedDataParallel(torch.nn.Linear(256, 8), bucket_cap_mb=3)
    hooktrace.instrument(other, tracer=tracer, model="other")
if HOW == "torch":
    ddp.register_comm_hook(None, fp16_compress_hook)
for _ in range(STEPS):
    ddp(torch.randn(32, 256)).square().mean().backward()
    if other is not None:
        other(torch.randn(4, 256)).square().mean().backward()
dist.barrier()
hooktrace.default_tracer().close()
del ddp, other
gc.collect()  # or gloo may abort at the end
dist.destroy_process_group()
