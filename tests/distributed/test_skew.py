"""The late rank, told by its arrivals, online on 4 real gloo ranks.

Late is a matter of order and not of luck: the late rank waits until the others have been where they
shall be before it, and then passes some time, which is far more than the clocks may be off by.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from tests.distributed.harness import Ranks
from tests.distributed.models import shared_folder
from tests.staging.test_units import Reduces

pytestmark = pytest.mark.slow

LATE_S = 0.02
"""The least that the late rank is late by."""

LAYER = range(5, 20)
"""Steps in which rank 2 is late in the backward pass of layer 2, as the fourth of six.

Counted from the first on whose clocks are known.
"""

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


class Places:
    """Where each rank has been, as files that all see."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._directory = directory
        self._rank = rank

    def reach(self, place: str) -> None:
        (self._directory / f"{place}.{self._rank}").touch()

    def wait(self, place: str, ranks: Iterable[int]) -> None:
        for rank in ranks:
            while not (self._directory / f"{place}.{rank}").exists():
                time.sleep(0.001)


def late_ranks(rank: int) -> dict[str, Any]:
    """Train where ranks are late by turns; return what each rank saw."""
    directory = shared_folder()
    _trace_elsewhere((1, 0, 2, 1)[rank])
    model = Layers()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.004)
    with Tracer(error_every=1, error_all_buckets=True) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        first, end = 0, time.monotonic() + KNOWN_S
        while first < 20 or not all_know(tracer):
            step_of(ddp)
            first += 1
            assert time.monotonic() < end, "the clocks are not known"
        late_s = max(LATE_S, 8 * uncertainty_s(tracer))
        places = Places(directory, rank)
        for step in range(LAYER.stop):
            if step in LAYER:
                late_in_a_layer(ddp, places, rank, step, late_s)
            else:
                step_of(ddp)
        skews = sorted(
            (s.step - first, s.bucket, s.late_rank, s.arrival_delay_ns)
            for s in tracer.skews()
            if s.step >= first
        )
        clocks = [(c.offset_ns, c.uncertainty_ns) for c in tracer.clocks()]
    dist.barrier()
    shutil.rmtree(directory, ignore_errors=True)
    return {"skews": skews, "clocks": clocks, "late_ns": late_s * 1e9}


@pytest.fixture(scope="module")
def seen(four: Ranks) -> list[Any]:
    """What each of 4 ranks saw of one run."""
    return four.run(late_ranks)


def test_clocks_of_one_host_agree(seen: list[Any]) -> None:
    """The same clock is read everywhere, so the offset is all error, and within its bound."""
    assert seen[0]["clocks"] == []
    for facts in seen[1:]:
        assert facts["clocks"]
        for offset_ns, uncertainty_ns in facts["clocks"]:
            assert abs(offset_ns) <= uncertainty_ns
        assert min(uncertainty_ns for _, uncertainty_ns in facts["clocks"]) < LATE_S * 1e9 / 4


BUCKETS = 6

BEHIND = [3, 4, 5]
"""Buckets of what comes after layer 2's output in the backward pass: layers 2, 1 and 0."""

LATE = 2


def test_the_late_rank_is_named_online(seen: list[Any]) -> None:
    """At each bucket that it was late for, by all ranks alike; its own delay is the delay."""
    assert len({tuple(row[:3] for row in facts["skews"]) for facts in seen}) == 1
    windows = [[row for row in facts["skews"] if row[0] in LAYER] for facts in seen]
    for rows in zip(*windows, strict=True):
        _, bucket, named, _ = rows[0]
        assert (named == LATE) == (bucket in BEHIND)
        if bucket in BEHIND:
            delays = [row[3] for row in rows]
            following = max(delay for rank, delay in enumerate(delays) if rank != LATE)
            assert delays[LATE] - following > seen[LATE]["late_ns"] / 2
    assert [row[:2] for row in windows[0]] == [(s, b) for s in LAYER for b in range(BUCKETS)]


def _trace_elsewhere(tracers: int) -> None:
    """Have had tracers before, as of models that are on some ranks only."""
    for _ in range(tracers):
        with Tracer() as tracer:
            tracer.start()


def step_of(ddp: DistributedDataParallel, acts: dict[int, Act] | None = None) -> None:
    ddp.module.acts = acts or {}
    ddp(torch.ones(2, WIDTH, requires_grad=True)).sum().backward()


def late_in_a_layer(
    ddp: DistributedDataParallel, places: Places, rank: int, step: int, late_s: float
) -> None:
    """Rank 2 is the first with the buckets of layers 5 to 3, and the last with those of 2 to 0."""
    half, done = f"{step}.half", f"{step}.done"

    def stop() -> None:
        places.reach(half)
        places.wait(done, (0, 1, 3))
        time.sleep(late_s)

    if rank == 2:
        step_of(ddp, {3: stop})
    else:
        places.wait(half, (2,))
        step_of(ddp, {0: lambda: places.reach(done)})


def uncertainty_s(tracer: Tracer) -> float:
    """Return what the clock that is known worst may be off by."""
    known = tracer.clock_offset(time.perf_counter_ns())
    assert known is not None
    worst = torch.tensor([known[1]])
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item() / 1e9


def all_know(tracer: Tracer) -> bool:
    known = torch.tensor([tracer.clock_offset(time.perf_counter_ns()) is not None])
    dist.all_reduce(known, op=dist.ReduceOp.MIN)
    return bool(known)
