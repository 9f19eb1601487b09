"""``hooktrace bench --hooks``: each standard hook beside torch's own, same work, in one run.

Two gloo ranks.  Two DDP models of the same layers, one with each hook, take turns step by step; a
sample is the ratio of their times in one round.  A layer is a bucket, of 1, 5 or 25 MB, and the
batch is small, so that the hook is most of the step.  The row ``control`` is one hook against
itself: its spread is the noise of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import islice

import torch

from .harness import Hook, in_turns, linear_stack, on_all_ranks, run_ranks, step_s
from .peers import PEERS, Peer
from .table import Row, row_of

_SHAPES = {1: (512, 8), 5: (1144, 4), 25: (2560, 2)}
"""By MB of a bucket: width of a square layer, and number of layers."""
_WARMUP_ROUNDS = 4
_LEAST_ROUNDS = 8
_LONGEST_S = 10.0
"""For one hook and size, after the least rounds: torch's slowest step takes a second."""


def hooks_beside_torchs(*, quick: bool) -> Iterator[Row]:
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
    data = torch.randn(4, width)
    models = [linear_stack(width, layers, _plain(hook), state) for state, hook in peer.sides()]
    turns = in_turns([partial(step_s, model, data) for model in models])
    ratios: list[float] = []
    started = time.monotonic()
    for ours, theirs in islice(turns, _WARMUP_ROUNDS, _WARMUP_ROUNDS + rounds):
        ratios.append(ours / theirs)
        if len(ratios) >= _LEAST_ROUNDS and on_all_ranks(time.monotonic() - started > _LONGEST_S):
            break
    return ratios


def _plain(hook: Hook) -> Hook:
    """Return a hook with neither a name (torch's bf16) nor annotations that DDP refuses on gloo."""

    def plain(state, bucket):  # type: ignore[no-untyped-def]
        return hook(state, bucket)

    return plain
