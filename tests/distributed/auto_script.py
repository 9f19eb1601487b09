"""A training script that knows nothing of hooktrace: ``auto_script.py OUT [HOW]``.

Under torchrun it is one rank; with ``spawn`` or ``fork`` it starts two itself, each in a folder of
its own.  Rank 0 writes the last parameters' bits into OUT.  With ``exit`` each ends with code 7;
with ``children`` too, once it has started one that imports torch and trains nothing, as loaders do.
"""

import gc
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

OUT, HOW = Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else ""


def train(rank: int, store: str | None) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    if store is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    rank = dist.get_rank()
    os.chdir(tempfile.mkdtemp(dir=OUT.parent))
    torch.manual_seed(0)
    layers = (torch.nn.Linear(40, 40) for _ in range(4))
    ddp = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in range(6):
        optimizer.zero_grad()
        ddp(torch.randn(4, 40)).square().mean().backward()
        optimizer.step()
    if rank == 0:
        values = torch.cat([p.detach().flatten() for p in ddp.parameters()])
        OUT.write_bytes(values.numpy().tobytes())
    if HOW == "children":
        worker = multiprocessing.get_context("spawn").Process(target=__import__, args=("torch",))
        worker.start()
        worker.join(100)
    dist.barrier()
    del ddp
    gc.collect()  # or gloo may abort at the end
    dist.destroy_process_group()


if __name__ == "__main__":
    if HOW in ("spawn", "fork"):
        context = multiprocessing.get_context(HOW)
        store = str(OUT) + ".store"
        children = [context.Process(target=train, args=(rank, store)) for rank in range(2)]
        for child in children:
            child.start()
        for child in children:
            child.join(100)
        sys.exit(max(child.exitcode or 0 for child in children))
    train(int(os.environ.get("RANK", "0")), None)
    if HOW in ("exit", "children"):
        sys.exit(7)
