"""What the ranks do in ``test_harness.py``: each in its way what a scenario must not."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist

from hooktrace import Tracer
from tests.distributed.harness import scenario


def fine(rank: int) -> tuple[int, int, float]:
    """Return the process, the number of ranks, and a random number."""
    os.environ["HOOKTRACE_TEST"] = "left"
    return os.getpid(), dist.get_world_size(), torch.rand(1).item()


def environment_left(rank: int) -> bool:
    """Return whether an earlier scenario's environment is still there."""
    return "HOOKTRACE_TEST" in os.environ


def raises_on_one(rank: int) -> None:
    """Fail on rank 1 while rank 0 waits for it."""
    if rank == 1:
        raise ValueError("boom")
    dist.barrier()


@scenario(deadline_s=6)  # by then the other rank is done
def hangs(rank: int) -> None:
    """Never end on rank 0."""
    if rank == 0:
        time.sleep(1000)


def exits(rank: int) -> None:
    """End rank 1's process."""
    if rank == 1:
        print("on its way out", flush=True)  # noqa: T201  # what a test must show
        os._exit(7)
    dist.barrier()


def leaves_a_tracer(rank: int) -> None:
    """Forget to close a tracer."""
    Tracer()


@scenario(apart=True)
def alone(rank: int) -> int:
    """Return the process."""
    return os.getpid()
