"""What measurements share: models with known buckets, steps, and turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

Hook = Callable[..., Any]

_T = TypeVar("_T")

_LEAST_ROUNDS = 6
"""The whole range of fewer values holds their median with less than 95 %: 1 - 2 / 2**5 is 0.94."""


def linear_stack(
    width: int, layers: int, hook: Hook | None, state: Any = None, *, cap_mb: float = 0.0
) -> DistributedDataParallel:
    """Return a DDP model of ``layers`` layers without bias, ``width`` x ``width`` in float32.

    ``cap_mb``: DDP's limit of a bucket; without it each layer is a bucket.  ``hook``: ``None`` for
    none.
    """
    torch.manual_seed(0)
    stack = [torch.nn.Linear(width, width, bias=False) for _ in range(layers)]
    model = DistributedDataParallel(
        torch.nn.Sequential(*stack), bucket_cap_mb=cap_mb or width * width * 4 / 2**20
    )
    if hook is not None:
        model.register_comm_hook(state, hook)
    return model


def done(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Return a future whose result is there."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(tensor)
    return future


def in_turns(sides: Sequence[Callable[[], _T]]) -> Iterator[list[_T]]:
    """Call all sides, round after round, and yield what each gave in a round.

    Their order is drawn anew in each round, and is the same on all ranks, so that whatever else the
    machine does falls on all of them.
    """
    source = random.Random(0)
    while True:
        given = {i: sides[i]() for i in source.sample(range(len(sides)), len(sides))}
        yield [given[i] for i in range(len(sides))]


def rounds_of(turns: Iterator[_T], seconds: float) -> list[_T]:
    """Return rounds of so many seconds on rank 0, and at least six; all ranks must ask."""
    end = time.monotonic() + seconds
    found = list(islice(turns, _LEAST_ROUNDS))
    while not on_all_ranks(time.monotonic() > end):
        found.append(next(turns))
    return found


def on_all_ranks(answer: bool) -> bool:
    """Return rank 0's ``answer`` on every rank; all of them must ask."""
    answers = torch.tensor([float(answer)])
    dist.broadcast(answers, 0)
    return bool(answers.item())
