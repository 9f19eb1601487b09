"""Each standard hook beside torch's own, same work, in one run.

Two gloo ranks.  Two DDP models of the same layers, one with each hook, take turns step by step; a
sample is the ratio of their times in one round.  Each of four layers is a bucket of 5 MB, and the
batch is small.  The row ``control`` is one hook against itself: the noise of the machine.

On gloo torch 2.13's PowerSGD deadlocks with several buckets: *serialised* is torch's hook, waited
for before the next bucket.  Its batched form and its quantisation raise, so they are not here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)

from hooktrace import hooks
from hooktrace.commands.bench.harness import Hook, in_turns, linear_stack, on_all_ranks
from hooktrace.commands.bench.table import Row
from hooktrace.testing.ranks import run_ranks
from tests.distributed.comparison import serialised

from .harness import step_s

_WIDTH = 1144
"""Of a square layer of 5 MB."""
_WARMUP_ROUNDS = 4
_LEAST_ROUNDS = 8
_LONGEST_S = 10.0
"""For one hook, after the least rounds: torch's slowest step takes a second."""


def hooks_beside_torchs(*, quick: bool) -> Iterator[Row]:
    """Yield a row for each hook: its step time over torch's."""
    for index, peer in enumerate(PEERS):
        ratios = run_ranks(2, _ratios, index, _LEAST_ROUNDS if quick else 400)[0]
        yield Row(f"{peer.name}, 5 MB", ratios, "ratio", budget=1.0, note=peer.form)


def _ratios(index: int, rounds: int) -> list[float]:
    peer, data = PEERS[index], torch.randn(4, _WIDTH)
    sides = (peer.state(hooks), peer.ours), (peer.state(_TORCHS), peer.theirs)
    models = [linear_stack(_WIDTH, 4, _plain(hook), state) for state, hook in sides]
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


class Peer(NamedTuple):
    """A hook, and what it is compared with (``form``); ``state`` makes its state of classes."""

    name: str
    ours: Hook
    theirs: Hook
    form: str = "torch's own"
    state: Callable[[Any], Any] = lambda of: None


_TORCHS = SimpleNamespace(
    PowerSGDState=powerSGD_hook.PowerSGDState,
    PostLocalSGDState=post_localSGD_hook.PostLocalSGDState,
)


def _power(rank: int) -> Callable[[Any], Any]:
    return lambda of: of.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)


_OURS, _THEIRS = hooks, default_hooks
PEERS = (
    Peer("allreduce_hook", _OURS.allreduce_hook, _THEIRS.allreduce_hook),
    Peer("fp16_compress_hook", _OURS.fp16_compress_hook, _THEIRS.fp16_compress_hook),
    Peer("bf16_compress_hook", _OURS.bf16_compress_hook, _THEIRS.bf16_compress_hook),
    Peer("fp16_compress_wrapper(allreduce_hook)",
         _OURS.fp16_compress_wrapper(_OURS.allreduce_hook),
         _THEIRS.fp16_compress_wrapper(_THEIRS.allreduce_hook)),
    *(Peer(f"powerSGD_hook, rank {rank}", _OURS.powerSGD_hook,
           serialised(powerSGD_hook.powerSGD_hook), "torch's, serialised", _power(rank))
      for rank in (1, 4)),
    Peer("post_localSGD_hook", _OURS.post_localSGD_hook, post_localSGD_hook.post_localSGD_hook,
         state=lambda of: of.PostLocalSGDState(None, dist.group.WORLD, 2)),
    Peer("control: allreduce_hook on both sides", _THEIRS.allreduce_hook, _THEIRS.allreduce_hook),
)  # fmt: skip
