"""A sharded model (FSDP2), traced: ``torchrun --standalone --nproc-per-node 2 examples/fsdp.py``.

``--eight-bit`` sends gradients as bytes.  Records go where ``HOOKTRACE_RECORD_DIR`` and
``HOOKTRACE_PROMETHEUS_PORT`` say, if they do.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hooktrace
from hooktrace import fsdp
from hooktrace.fsdp.hooks import EightBitReduceScatter

WIDTH, LAYERS = 128, 4

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
torch.manual_seed(0)  # the same model on all ranks
layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0)
model = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
mesh = init_device_mesh("cpu", (ranks,))
for block in model.layers:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)

hook = EightBitReduceScatter(error_feedback=True) if "--eight-bit" in sys.argv else None
traced = fsdp.trace(model, reduce_scatter=hook)  # after all calls of fully_shard

optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.Generator().manual_seed(rank)
for _ in range(30):
    batch = torch.randn(32, 8, WIDTH, generator=data)
    loss = (model(batch) - batch.flip(0)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

tracer = hooktrace.default_tracer()
if rank == 0:
    print(*tracer.summary())
tracer.close()
traced.remove()
del model
hooktrace.shutdown()
