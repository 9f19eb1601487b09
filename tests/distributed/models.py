"""Small models and loops that the scenarios share."""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hooktrace import AnomalyRecord, Tracer, instrument


def make_model(layers: int = 6, width: int = 32) -> nn.Sequential:
    """Return a stack of linear layers, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])


def make_ddp(
    bucket_cap_mb: float = 0.01,
    layers: int = 6,
    make: Callable[[int], nn.Module] = make_model,
    **options: Any,
) -> DistributedDataParallel:
    """Return a DDP model with several buckets, of what ``make`` makes of so many layers."""
    return DistributedDataParallel(make(layers), bucket_cap_mb=bucket_cap_mb, **options)


def backward(
    ddp: nn.Module, rank: int, step: int, width: int = 32, dtype: torch.dtype = torch.float32
) -> None:
    """Run one forward and backward pass on input that depends on rank and step."""
    # torch.manual_seed would format three stacks, for devices that are not there.
    torch.default_generator.manual_seed(1000 * rank + step)
    ddp(torch.randn(4, width).to(dtype)).square().sum().backward()


def make_steps(ddp: nn.Module, rank: int, numbers: Iterable[int]) -> None:
    """Run passes, each of which begins without gradients."""
    for step in numbers:
        ddp.zero_grad()
        backward(ddp, rank, step)


def gradients(ddp: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in ddp.parameters() if p.grad is not None])


def train(
    hook: Callable[..., Any],
    rank: int,
    *,
    steps: int = 5,
    state: object = None,
    each_step: Callable[[], object] = lambda: None,
    **options: Any,
) -> torch.Tensor:
    """Register a hook on a new model, run some steps, and return every step's gradients."""
    ddp = make_ddp(**options)
    ddp.register_comm_hook(state, hook)
    seen = []
    for step in range(steps):
        ddp.zero_grad()
        backward(ddp, rank, step)
        seen.append(gradients(ddp).clone())
        each_step()
    return torch.stack(seen)


def traced(
    hook: Callable[..., Any],
    rank: int,
    state: object = None,
    *,
    steps: int,
    model: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Tracer, torch.Tensor]:
    """Train with a traced hook, a bucket a layer; return the tracer, closed, and all gradients.

    ``model``: options of ``make_ddp``; ``options``: of the tracer.
    """
    ddp = make_ddp(**{"bucket_cap_mb": 0.004, **(model or {})})
    seen = []
    with Tracer(**options) as tracer:
        instrument(ddp, hook, state, tracer=tracer)
        for step in range(steps):
            ddp.zero_grad(set_to_none=step % 2 == 0)
            backward(ddp, rank, step)
            seen.append(gradients(ddp).clone())
            dist.barrier()  # hooks that do not communicate would let the ranks drift apart
        tracer.flush()
    return tracer, torch.stack(seen)


def of_all_ranks(value: Any) -> list[Any]:
    """Return what each rank has; collective."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def shared_folder() -> Path:
    """Return a new folder, the same on all ranks; collective."""
    made = tempfile.mkdtemp(prefix="hooktrace-ranks-") if dist.get_rank() == 0 else ""
    return Path(of_all_ranks(made)[0])


def anomalies(tracer: Tracer) -> list[AnomalyRecord]:
    """Return a tracer's anomalies but for stalls: a busy machine may hold a step up for seconds."""
    return [found for found in tracer.anomalies() if found.kind != "stall"]


@contextmanager
def heard(about: str = "") -> Iterator[list[str]]:
    """Keep what hooktrace logs, of what has some words: others are about how long things take."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(lambda record: about in record.getMessage())
    logger = logging.getLogger("hooktrace")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


class Summing(nn.Module):
    """The identity, whose gradient is summed over the ranks, as between experts."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = value.view_as(value)
        value.register_hook(_summed)
        return value


def _summed(gradient: torch.Tensor) -> torch.Tensor:
    total = gradient.clone()
    dist.all_reduce(total)
    return total


class FailingClock:
    """Raises at every so many readings on the training thread while it is told to."""

    def __init__(self, every: int = 1) -> None:
        self.fails = False
        self._every = every
        self._readings = 0
        self._thread = threading.get_ident()

    def __call__(self) -> int:
        if self.fails and threading.get_ident() == self._thread:
            self._readings += 1
            if self._readings % self._every == 0:
                raise OSError("no time")
        return time.perf_counter_ns()
