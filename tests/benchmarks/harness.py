"""What these benchmarks share beyond the product's own harness (``hooktrace.commands.bench``)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hooktrace.testing import FakeBucket

STATM = Path("/proc/self/statm")


def resident_mib() -> float:
    """Return the size of this process's memory (Linux only)."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def fake_buckets(count: int) -> list[FakeBucket]:
    """Return the small buckets of one model, in order."""
    return [FakeBucket([torch.zeros(16)], index=i, is_last=i == count - 1) for i in range(count)]


def step_s(model: DistributedDataParallel, data: torch.Tensor) -> float:
    """Return how many seconds forward and backward take, once all ranks have come to them."""
    dist.barrier()
    started = time.perf_counter()
    model.zero_grad()
    model(data).square().mean().backward()
    return time.perf_counter() - started
