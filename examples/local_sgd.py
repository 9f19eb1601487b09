"""Post-local SGD, traced: ``torchrun --nproc-per-node 4 examples/local_sgd.py``.

Ten steps average gradients over all ranks, the others over pairs of ranks; from then on every
fourth step averages the parameters of all ranks.
"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import hooktrace

START, PERIOD = 10, 4
STEPS = START + 10 * PERIOD + 1  # the last one ends in an averaging


def apart(model: torch.nn.Module) -> float:
    """Return the largest difference between the same parameter on two ranks."""
    low = torch.cat([p.detach().flatten() for p in model.parameters()])
    high = low.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    return (high - low).max().item()


dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
pairs = [list(range(first, min(first + 2, ranks))) for first in range(0, ranks, 2)]
pair, _ = dist.new_subgroups_by_enumeration(pairs)
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
ddp = DistributedDataParallel(model, bucket_cap_mb=1)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
averager = PeriodicModelAverager(period=PERIOD, warmup_steps=START)
state = hooktrace.hooks.PostLocalSGDState(None, pair, START)
torch.manual_seed(rank)
with hooktrace.Tracer() as tracer:
    hooktrace.instrument(ddp, hooktrace.hooks.post_localSGD_hook, state, tracer=tracer)
    for _ in range(STEPS):
        optimizer.zero_grad()
        ddp(torch.randn(64, 256)).square().mean().backward()
        optimizer.step()
        before = apart(ddp)
        averager.average_parameters(ddp.parameters())
    after = apart(ddp)
    if rank == 0:
        print(*tracer.summary())
        print(f"replicas apart by {before:.1e} before the last averaging, {after} after it")
del ddp
hooktrace.shutdown()
