"""Ways in which the ranks of a sharded model come to wait for ever, as ``hang_scenarios.py``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import hooktrace
from hooktrace import fsdp
from hooktrace.exporters import RecordFileExporter
from tests.distributed.hang_scenarios import HANGS_AT, LATE, for_ever, meet, next_batch, observed
from tests.distributed.sharded_scenarios import WIDTH, Setup, one_pass, sharded

TWO_BY_TWO = Setup(mesh="two by two")
HYBRID_LATE = 3
"""Of two replicas the rank that stays away: in the second one."""


def batch() -> torch.Tensor:
    """Return some rows."""
    return torch.ones(8, WIDTH)


def trained(rank: int, setup: Setup | None = None, steps: int = HANGS_AT, **options: Any) -> Any:
    """Return a traced model that has made some steps, and whose ranks know each other."""
    model = sharded(Setup() if setup is None else setup)
    fsdp.trace(model, tracer=observed(rank, **options), name="net")
    for _ in range(steps):
        one_pass(model, batch)
    meet(rank)
    time.sleep(0.5)
    return model


def before(block: nn.Module, act: Callable[[], None]) -> None:
    """Do something in a block's forward pass, when its parameters are there."""
    block.inner.register_forward_pre_hook(lambda *_: act())


def dumps(rank: int) -> None:
    """Rank 1 is busy in the forward pass of one unit; all write down what they know."""
    exporter = RecordFileExporter(logdir=os.environ["HOOKTRACE_TEST_HANGS"])
    model = trained(rank, on_hang="dump", exporters=[exporter])
    if rank == LATE:
        before(model.blocks[1], next_batch)
    one_pass(model, batch)


def skips_a_unit(rank: int) -> None:
    """Rank 1 leaves a block out in one step."""
    model = trained(rank)
    if rank == LATE:
        blocks = model.blocks
        model.forward = lambda x: model.head(blocks[2](blocks[0](x)))
    one_pass(model, batch)
    if rank == LATE:
        del model.forward
    one_pass(model, batch)
    for_ever()


def leaves(rank: int) -> None:
    """Rank 1 has a batch less, and ends its training."""
    model = trained(rank)
    if rank != LATE:
        one_pass(model, batch)
    del model
    hooktrace.shutdown()


def raised(rank: int) -> None:
    """Rank 1 raises in the forward pass, and stays in its except."""
    model = trained(rank)

    def bad() -> None:
        raise ValueError("a bad batch")

    if rank == LATE:
        before(model.blocks[2], bad)
    try:
        one_pass(model, batch)
    except ValueError:
        for_ever()


def replica_stopped(rank: int) -> None:
    """One rank of the second replica is stopped."""
    model = trained(rank, TWO_BY_TWO)
    if rank == HYBRID_LATE:
        before(model.blocks[1], lambda: os.kill(os.getpid(), signal.SIGSTOP))
    one_pass(model, batch)


def all_reduce_lacks(rank: int) -> None:
    """The second replica does not reduce over the replicas."""
    model = trained(rank, TWO_BY_TWO)
    if rank >= 2:
        model.set_requires_all_reduce(False)
    one_pass(model, batch)
    for_ever()


def in_evaluation(rank: int) -> None:
    """Rank 1 does not come to an evaluation."""
    model = trained(rank)
    if rank == LATE:
        next_batch()
    with torch.no_grad():
        model(batch())
