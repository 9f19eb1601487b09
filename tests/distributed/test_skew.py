"""The late rank, told by its arrivals, online on 4 real gloo ranks.

Late is a matter of order and not of luck: the late rank waits until the others have been where they
shall be before it, and then passes some time, which is far more than the clocks may be off by.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.harness import on
from tests.distributed.models import of_all_ranks, shared_folder
from tests.staging.test_units import Reduces

pytestmark = pytest.mark.slow

LATE_S = 0.02
"""The least that the late rank is late by."""

LAYER = range(5, 20)
"""Steps in which rank 2 is late in the backward pass of layer 2, as the fourth of six.

Counted from the first on whose clocks are known.
"""

BUCKETS, BEHIND = 6, [3, 4, 5]
"""Those of what comes after layer 2's output in the backward pass: layers 2, 1 and 0."""

LATE = 2
KNOWN_S = 60.0
"""Ranks have that long to find each other and to compare their clocks."""

WIDTH = 32

Act = Callable[[], None]


class Layers(nn.Module):
    """Six linear layers; ``acts`` are done as soon as all layers from their number on are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.acts: dict[int, Act] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            if i in self.acts:
                x = Reduces.apply(x, self.acts[i])
            x = layer(x)
        return x


def reach(place: Path) -> None:
    """Leave a file that all see, beside those of other ranks."""
    place.with_suffix(f".{dist.get_rank()}").touch()


def wait(place: Path, ranks: Iterable[int], then_s: float = 0.0) -> None:
    for rank in ranks:
        while not place.with_suffix(f".{rank}").exists():
            time.sleep(0.001)
    time.sleep(then_s)


def step_of(ddp: DistributedDataParallel, acts: dict[int, Act] | None = None) -> None:
    ddp.module.acts = acts or {}
    ddp(torch.ones(2, WIDTH, requires_grad=True)).sum().backward()


def late_in_a_layer(ddp: DistributedDataParallel, place: Path, late_s: float) -> None:
    """Rank 2 is the first with the buckets of layers 5 to 3, and the last with those of 2 to 0."""
    half, done = place.with_name(f"{place.name}-half"), place.with_name(f"{place.name}-done")

    def stop() -> None:
        reach(half)
        wait(done, (0, 1, 3), late_s)

    if dist.get_rank() == LATE:
        step_of(ddp, {3: stop})
    else:
        wait(half, (LATE,))
        step_of(ddp, {0: partial(reach, done)})


def uncertainty_s(tracer: Tracer) -> float:
    """Return what the clock that is known worst may be off by."""
    known = tracer.clock_offset(time.perf_counter_ns())
    assert known is not None
    return max(of_all_ranks(known[1])) / 1e9


def all_know(tracer: Tracer) -> bool:
    return all(of_all_ranks(tracer.clock_offset(time.perf_counter_ns()) is not None))


@on(4)
def test_the_late_rank_is_named_online(rank: int) -> None:
    """At each bucket that it was late for, by all ranks alike; clocks of one host agree."""
    folder = shared_folder()
    ddp = DistributedDataParallel(Layers(), bucket_cap_mb=0.004)
    with Tracer(error_every=1, error_all_buckets=True) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        first, end = 0, time.monotonic() + KNOWN_S
        while first < 20 or not all_know(tracer):
            step_of(ddp)
            first += 1
            assert time.monotonic() < end, "the clocks are not known"
        late_s = max(LATE_S, 8 * uncertainty_s(tracer))
        for step in range(LAYER.stop):
            if step in LAYER:
                late_in_a_layer(ddp, folder / str(step), late_s)
            else:
                step_of(ddp)
        skews = sorted(
            (s.step - first, s.bucket, s.late_rank, s.arrival_delay_ns) for s in tracer.skews()
        )
        clocks = [(c.offset_ns, c.uncertainty_ns) for c in tracer.clocks()]
    dist.barrier()
    shutil.rmtree(folder, ignore_errors=True)
    assert bool(clocks) == (rank > 0)
    assert all(abs(offset_ns) <= uncertainty_ns for offset_ns, uncertainty_ns in clocks)
    assert rank == 0 or min(uncertain_ns for _, uncertain_ns in clocks) < LATE_S * 1e9 / 4
    mine = [row for row in skews if row[0] in LAYER]
    assert [row[:2] for row in mine] == [(s, b) for s in LAYER for b in range(BUCKETS)]
    for rows in zip(*of_all_ranks(mine), strict=True):
        assert len({row[:3] for row in rows}) == 1
        _, bucket, named, _ = rows[0]
        assert (named == LATE) == (bucket in BEHIND)
        if bucket in BEHIND:
            delays = [row[3] for row in rows]
            following = max(delay for rank, delay in enumerate(delays) if rank != LATE)
            assert delays[LATE] - following > late_s * 1e9 / 2
