"""``hooktrace bench --hooks``: each standard hook beside torch's own, same work, in one run.

Two gloo ranks.  Two DDP models of the same layers, one with each hook, take turns step by step, and
which goes first alternates; a sample is the ratio of their times in one round.  A layer is a
bucket, of 1, 5 or 25 MB, and the batch is small, so that the hook is most of the step.  The row
``control`` is one hook against itself: its spread is the noise of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch.nn.parallel import DistributedDataParallel

from .models import linear_stack
from .peers import PEERS, Peer
from .ranks import on_all_ranks, run_ranks
from .table import Row, row_of

_SHAPES = {1: (512, 8), 5: (1144, 4), 25: (2560, 2)}
"""By MB of a bucket: width of a square layer, and number of layers."""
_WARMUP_ROUNDS = 4
_LEAST_ROUNDS = 8
_LONGEST_S = 10.0
"""For one hook and size, after the least rounds: torch's slowest step takes a second."""


def run(*, quick: bool) -> Iterator[Row]:
    """Yield a row for each hook and bucket size: its step time over torch's."""
    rounds = _LEAST_ROUNDS if quick else 400
    for index, peer in enumerate(PEERS):
        ratios: dict[int, list[float]] = run_ranks(2, _measure, index, rounds, deadline_s=600)[0]
        for size, samples in ratios.items():
            what = f"{peer.name}, {size} MB"
            yield row_of(what, samples, "ratio", budget=peer.budget, note=peer.form)


def _measure(index: int, rounds: int) -> dict[int, list[float]]:
    return {size: _ratios(PEERS[index], *shape, rounds) for size, shape in _SHAPES.items()}


def _ratios(peer: Peer, width: int, layers: int, rounds: int) -> list[float]:
    models = []
    for make in (peer.ours, peer.theirs):
        state, hook = make()
        models.append(linear_stack(width, layers, hook, state))
    data = torch.randn(4, width)
    ratios: list[float] = []
    started = time.monotonic()
    for count in range(_WARMUP_ROUNDS + rounds):
        seconds = [0.0, 0.0]
        for side in (0, 1) if count % 2 else (1, 0):
            seconds[side] = _step(models[side], data)
        if count >= _WARMUP_ROUNDS:
            ratios.append(seconds[0] / seconds[1])
            if len(ratios) >= _LEAST_ROUNDS and on_all_ranks(
                time.monotonic() - started > _LONGEST_S
            ):
                break
    return ratios


def _step(model: DistributedDataParallel, data: torch.Tensor) -> float:
    torch.distributed.barrier()
    started = time.perf_counter()
    model.zero_grad()
    model(data).square().mean().backward()
    return time.perf_counter() - started
