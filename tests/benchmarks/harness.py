"""What these benchmarks share beyond the product's own harness (``hooktrace.commands.bench``)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hooktrace.commands.bench.table import Row
from hooktrace.testing import FakeBucket

STATM = Path("/proc/self/statm")
WIDTH, LAYERS, BATCH = 1024, 12, 64
"""Of the model of a whole step, 12.6 M parameters."""

_WARMUP_STEPS = 8

Block = tuple[float, float]
"""Mean ns of a step: by the clock, and processor time of the process."""


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


def warm(model: Any) -> Callable[[int], None]:
    """Return what trains a model for so many steps, after some that warm it up."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    data = torch.randn(BATCH, WIDTH)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()

    train(_WARMUP_STEPS)
    return train


def whole_step_rows(what: str, rounds: list[list[Block]]) -> Iterator[Row]:
    """Yield how much longer a block of the first side took than one of the second, untraced."""
    wall, cpu = np.array([np.divide(traced, plain) for traced, plain in rounds]).T.tolist()
    note = f"{len(rounds)} pairs of blocks"
    yield Row(what, wall, "ratio", budget=1.01, note=note)
    yield Row("the same, processor time of all threads", cpu, "ratio")
    yield Row("a step, untraced", [plain[0] / 1e6 for _, plain in rounds], "ms")
