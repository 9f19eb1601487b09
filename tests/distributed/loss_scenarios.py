"""Two runs with different hooks, each with its loss beside its records, as training scripts do."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.exporters import RecordFileExporter, TensorBoardExporter
from tests.distributed.models import make_ddp

STEPS = 120


def two_runs(rank: int) -> Path:
    """Return the folder of both runs' logdirs; rank 0 alone writes a loss."""
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    logs = Path(str(folder[0]))
    for hook in (hooks.allreduce_hook, hooks.quantization_pertensor_hook):
        _train(hook, rank, logs / hook.__name__)
        dist.barrier()
    return logs


def _train(hook: object, rank: int, logdir: Path) -> None:
    ddp = make_ddp()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    inputs = torch.Generator().manual_seed(rank)
    exporters = [RecordFileExporter(logdir), TensorBoardExporter(logdir)]
    with Tracer(exporters, error_every=30) as tracer, SummaryWriter(logdir / f"of{rank}") as writer:
        hooktrace.instrument(ddp, hook, None, tracer=tracer, model="stack")
        for step in range(STEPS):
            x = torch.randn(16, 32, generator=inputs)
            loss = (ddp(x) - x.roll(1, dims=1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                writer.add_scalar("train/loss", loss.item(), step)
