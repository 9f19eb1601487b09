"""What the ranks do in ``test_skew.py``: some are late, in the forward pass or in one layer."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.exporters import RecordFileExporter

LATE_S = 0.02
FORWARD = range(15)
"""Steps in which rank 1 is late in its forward pass, from the first on whose clocks are known."""
LAYER = range(20, 35)
"""Steps in which rank 2 is late in the backward pass of layer 2, as the fourth of six."""
WARM_UP = 500
WIDTH = 32


class _Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _pass_time()
        return gradients[0]


def _pass_time() -> None:
    end = time.perf_counter() + LATE_S
    while time.perf_counter() < end:
        time.sleep(0.001)


class Layers(nn.Module):
    """Six linear layers, of which one can be made late."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.late: int | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i == self.late:
                x = _Late.apply(x)
        return x


def late_ranks(rank: int) -> dict[str, Any]:
    """Train where ranks are late by turns; return what each rank saw, and the files' directory."""
    directory = [tempfile.mkdtemp(prefix="hooktrace-skew-") if rank == 0 else ""]
    dist.broadcast_object_list(directory, 0)
    model = Layers()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.004)
    exporter = RecordFileExporter(directory[0])
    with Tracer([exporter], error_every=1, error_all_buckets=True) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        first = 0
        while first < 20 or not _all_know(tracer):
            ddp(torch.ones(2, WIDTH)).sum().backward()
            first += 1
            assert first < WARM_UP
        for step in range(LAYER.stop):
            if step in FORWARD and rank == 1:
                _pass_time()
            model.late = 2 if step in LAYER and rank == 2 else None
            ddp(torch.ones(2, WIDTH)).sum().backward()
        skews = sorted(
            (s.step - first, s.bucket, s.late_rank, s.lag_ns)
            for s in tracer.skews()
            if s.step >= first
        )
        clocks = [(c.offset_ns, c.uncertainty_ns) for c in tracer.clocks()]
    dist.barrier()
    return {"skews": skews, "clocks": clocks, "directory": directory[0], "first": first}


def _all_know(tracer: Tracer) -> bool:
    """Return whether every rank knows its clock."""
    known = torch.tensor([tracer.clock_offset(time.perf_counter_ns()) is not None])
    dist.all_reduce(known, op=dist.ReduceOp.MIN)
    return bool(known)
