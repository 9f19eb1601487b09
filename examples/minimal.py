"""The smallest traced training job: ``torchrun --nproc-per-node 2 examples/minimal.py``."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hooktrace

dist.init_process_group("gloo")
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))
ddp = DistributedDataParallel(model, bucket_cap_mb=4)
with hooktrace.Tracer() as tracer:
    hooktrace.instrument(ddp, hooktrace.hooks.fp16_compress_hook, tracer=tracer)
    for _ in range(50):
        ddp(torch.randn(64, 512)).square().mean().backward()
    if dist.get_rank() == 0:
        print(*tracer.summary())
del ddp
hooktrace.shutdown()
