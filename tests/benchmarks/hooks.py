"""Each standard hook beside torch's own, same work, in one run.

Two gloo ranks.  Two DDP models of the same layers, one with each hook, take turns step by step; a
sample is the ratio of their times in one round.  Each of four layers is a bucket of 5 MB, and the
batch is small, so that the hook is most of the step.  The row ``control`` is one hook against
itself: its spread is the noise of the machine.

On gloo torch 2.13's PowerSGD deadlocks with several buckets, its batched form and its quantisation
raise.  *serialised*: torch's hook, waited for before the next bucket.  *repaired*: torch's formulas
with the least change that makes them run, serialised as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)

from hooktrace import hooks
from hooktrace.commands.bench.harness import (
    Hook,
    done,
    in_turns,
    linear_stack,
    on_all_ranks,
)
from hooktrace.commands.bench.table import Row
from hooktrace.testing.ranks import run_ranks

from .harness import step_s

_WIDTH = 1144
"""Of a square layer of 5 MB."""
_WARMUP_ROUNDS = 4
_LEAST_ROUNDS = 8
_LONGEST_S = 10.0
"""For one hook, after the least rounds: torch's slowest step takes a second."""
_CHANNEL = 512
"""Elements that share a scale in per-channel quantisation."""


def hooks_beside_torchs(*, quick: bool) -> Iterator[Row]:
    """Yield a row for each hook: its step time over torch's."""
    for index, peer in enumerate(PEERS):
        ratios = run_ranks(2, _ratios, index, _LEAST_ROUNDS if quick else 400)[0]
        yield Row(f"{peer.name}, 5 MB", ratios, "ratio", budget=peer.budget, note=peer.form)


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


@dataclass(frozen=True, slots=True)
class Peer:
    """A hook of hooktrace and what it is compared with.

    ``form``: torch's own, serialised or repaired.  ``budget``: of the ratio.  ``state`` makes a
    hook's state with what it is given the classes of.
    """

    name: str
    ours: Hook
    theirs: Hook
    form: str = "torch's own"
    _: KW_ONLY
    budget: float = 1.0
    state: Callable[[Any], Any] = lambda of: None


_TORCHS = SimpleNamespace(
    PowerSGDState=powerSGD_hook.PowerSGDState,
    PostLocalSGDState=post_localSGD_hook.PostLocalSGDState,
)


def _serialised(hook: Hook) -> Hook:
    """Return a hook that waits for each bucket, so that collectives cannot pair up wrongly."""
    return lambda state, bucket: done(hook(state, bucket).wait())


def _batched(state: Any, bucket: Any) -> Any:
    """Run torch's batched hook with the batch dimension that its orthogonalisation asks for."""
    orthogonalize = powerSGD_hook._orthogonalize

    def of_one(matrix: torch.Tensor, epsilon: float = 0) -> None:
        orthogonalize(matrix if matrix.dim() == 3 else matrix[None], epsilon)

    with mock.patch.object(powerSGD_hook, "_orthogonalize", of_one):
        return done(powerSGD_hook.batched_powerSGD_hook(state, bucket).wait())


def _all_gathered(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors of all ranks, in their order."""
    parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts


def _quantised(channel: int | None) -> Hook:
    """Return torch's quantisation with the all-gathers' results taken as gloo gives them."""
    if channel is None:
        observer_type: Any = torch.ao.quantization.MinMaxObserver
        quantize = quantization_hooks._quantize_per_tensor_backend
        dequantize = quantization_hooks._dequantize_per_tensor_backend
    else:
        observer_type = torch.ao.quantization.PerChannelMinMaxObserver
        quantize = quantization_hooks._quantize_per_channel_backend
        dequantize = quantization_hooks._dequantize_per_channel_backend

    def hook(state: Any, bucket: Any) -> Any:
        tensor = bucket.buffer()
        values = tensor
        if channel is not None:
            missing = channel - len(tensor) % channel
            values = torch.nn.functional.pad(tensor, (0, missing)).view(-1, channel)
        observer = observer_type()
        observer(values)
        scales = _all_gathered(torch.stack([p.float() for p in observer.calculate_qparams()]))
        parts = _all_gathered(quantize(values, *scales[dist.get_rank()]))
        total = torch.zeros(values.shape)
        for part, (scale, zero) in zip(parts, scales, strict=True):
            total += dequantize(part, scale, zero)
        return done(total.flatten()[: len(tensor)] / len(parts))

    return hook


def _power(rank: int) -> Callable[[Any], Any]:
    return lambda of: of.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)


_REPAIRED = "torch's, repaired"

PEERS = (
    Peer("allreduce_hook", hooks.allreduce_hook, default_hooks.allreduce_hook),
    Peer("fp16_compress_hook", hooks.fp16_compress_hook, default_hooks.fp16_compress_hook),
    Peer("bf16_compress_hook", hooks.bf16_compress_hook, default_hooks.bf16_compress_hook),
    Peer(
        "fp16_compress_wrapper(allreduce_hook)",
        hooks.fp16_compress_wrapper(hooks.allreduce_hook),
        default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
    ),
    *(
        Peer(
            f"powerSGD_hook, rank {rank}",
            hooks.powerSGD_hook,
            _serialised(powerSGD_hook.powerSGD_hook),
            "torch's, serialised",
            state=_power(rank),
        )
        for rank in (1, 4)
    ),
    Peer(
        "batched_powerSGD_hook, rank 1",
        hooks.batched_powerSGD_hook,
        _batched,
        _REPAIRED,
        state=_power(1),
    ),
    Peer(
        "quantization_pertensor_hook",
        hooks.quantization_pertensor_hook,
        _quantised(None),
        _REPAIRED,
    ),
    Peer(
        "quantization_perchannel_hook",
        hooks.quantization_perchannel_hook,
        _quantised(_CHANNEL),
        _REPAIRED,
        budget=0.05,
    ),
    Peer(
        "post_localSGD_hook",
        hooks.post_localSGD_hook,
        post_localSGD_hook.post_localSGD_hook,
        state=lambda of: of.PostLocalSGDState(None, dist.group.WORLD, 2),
    ),
    Peer(
        "control: allreduce_hook on both sides",
        default_hooks.allreduce_hook,
        default_hooks.allreduce_hook,
    ),
)
