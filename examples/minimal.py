"""The smallest traced training job: alone, or with ``torchrun --nproc-per-node 2``."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hooktrace

alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
dist.init_process_group("gloo", **({} if dist.is_torchelastic_launched() else alone))
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))
ddp = DistributedDataParallel(model, bucket_cap_mb=4)
tracer = hooktrace.Tracer()
hooktrace.instrument(ddp, hooktrace.hooks.fp16_compress_hook, tracer=tracer)
for _ in range(50):
    ddp(torch.randn(64, 512)).square().mean().backward()
if dist.get_rank() == 0:
    for b in tracer.summary()[0].buckets:
        stages = ", ".join(f"{name} {ns / 1e6:.2f} ms" for name, ns in b.stage_p50_ns.items())
        print(f"bucket {b.bucket}: {b.gradient_bytes} bytes as {b.wire_bytes}, {stages}")
tracer.close()
del ddp
hooktrace.shutdown()
