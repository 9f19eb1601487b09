"""What hooktrace's hooks are measured against: torch's own, or the nearest form of it that runs.

On gloo torch 2.13's PowerSGD deadlocks with several buckets, its batched form and its quantisation
raise.  *serialised*: torch's hook, waited for before the next bucket.  *repaired*: torch's formulas
with the least change that makes them run, serialised as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    optimizer_overlap_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)

from ... import hooks
from ...staging.collectives import AllGather
from ...staging.driver import Steps
from ...staging.groups import group_of
from ...staging.hook import staged

Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A hook of hooktrace and what it is compared with.

    ``ours`` and ``theirs`` return (state, hook) for one DDP model.  ``form``: torch's own,
    serialised, repaired, or the formula where torch has none.  ``budget``: of the ratio, if any.
    """

    name: str
    ours: Callable[[], tuple[Any, Hook]]
    theirs: Callable[[], tuple[Any, Hook]]
    form: str = "torch's own"
    budget: float | None = 1.0


def _serialised(hook: Hook) -> Hook:
    """Return a hook that waits for each bucket, so that collectives cannot pair up wrongly."""

    def waited(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses string annotations
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(hook(state, bucket).wait())
        return future

    return waited


def _renamed(hook: Hook) -> Hook:
    """Return torch's bf16 hook under a name that DDP does not refuse on gloo."""

    def renamed(state, bucket):  # type: ignore[no-untyped-def]
        return hook(state, bucket)

    return renamed


def _batched(state: Any, bucket: Any) -> Any:
    """Run torch's batched hook with the batch dimension that its orthogonalisation asks for."""
    orthogonalize = powerSGD_hook._orthogonalize

    def of_one(matrix: torch.Tensor, epsilon: float = 0) -> None:
        orthogonalize(matrix if matrix.dim() == 3 else matrix[None], epsilon)

    with mock.patch.object(powerSGD_hook, "_orthogonalize", of_one):
        future = powerSGD_hook.batched_powerSGD_hook(state, bucket)
        future.wait()
    return future


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

    def gathered(tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all ranks, in their order."""
        parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor)
        return parts

    def hook(state, bucket):  # type: ignore[no-untyped-def]
        tensor = bucket.buffer()
        values = tensor
        if channel is not None:
            missing = channel - len(tensor) % channel
            values = torch.nn.functional.pad(tensor, (0, missing)).view(-1, channel)
        observer = observer_type()
        observer(values)
        parameters = gathered(torch.stack([p.float() for p in observer.calculate_qparams()]))
        scale, zero = parameters[dist.get_rank()]
        parts = gathered(quantize(values, scale, zero))
        total = torch.zeros(values.shape)
        for part, (scale, zero) in zip(parts, parameters, strict=True):
            total += dequantize(part, scale, zero)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(total.flatten()[: len(tensor)] / len(parts))
        return future

    return hook


@staged
def _bytes_alone(state: Any, bucket: Any) -> Steps:
    """Send what per-channel quantisation sends, and compute nothing: the least it can take."""
    buffer: torch.Tensor = bucket.buffer()
    size = buffer.numel() + 5 * -(-buffer.numel() // 512)
    yield AllGather(buffer.view(torch.uint8)[:size], group_of(state))
    return buffer


def _gathered(state, bucket):  # type: ignore[no-untyped-def]
    """Gather all gradients and average them, each rank beginning with its own, as torch 1.7 did."""
    tensor: torch.Tensor = bucket.buffer()
    rank = dist.get_rank()
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    work = dist.all_gather(parts, tensor, async_op=True)

    def aggregate(future: Any) -> torch.Tensor:
        for other, part in enumerate(parts):
            if other != rank:
                tensor.add_(part)
        tensor.div_(len(parts))
        return tensor

    return work.get_future().then(aggregate)


def _power(module: Any, rank: int) -> Any:
    return module.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)


def _stateless(hook: Hook) -> Callable[[], tuple[Any, Hook]]:
    return lambda: (None, hook)


def _power_peer(rank: int) -> Peer:
    return Peer(
        name=f"powerSGD_hook, rank {rank}",
        ours=lambda: (_power(hooks, rank), hooks.powerSGD_hook),
        theirs=lambda: (_power(powerSGD_hook, rank), _serialised(powerSGD_hook.powerSGD_hook)),
        form="torch's, serialised",
    )


class _Sgd:
    """A functional optimizer: plain SGD."""

    def step_param(self, param: torch.Tensor, grad: torch.Tensor) -> None:
        with torch.no_grad():
            param.add_(grad, alpha=-1e-6)


PEERS = (
    Peer(
        name="allreduce_hook",
        ours=_stateless(hooks.allreduce_hook),
        theirs=_stateless(default_hooks.allreduce_hook),
    ),
    Peer(
        name="fp16_compress_hook",
        ours=_stateless(hooks.fp16_compress_hook),
        theirs=_stateless(default_hooks.fp16_compress_hook),
    ),
    Peer(
        name="bf16_compress_hook",
        ours=_stateless(hooks.bf16_compress_hook),
        theirs=_stateless(_renamed(default_hooks.bf16_compress_hook)),
    ),
    Peer(
        name="fp16_compress_wrapper(allreduce_hook)",
        ours=_stateless(hooks.fp16_compress_wrapper(hooks.allreduce_hook)),
        theirs=_stateless(_renamed(default_hooks.fp16_compress_wrapper(
            default_hooks.allreduce_hook))),
    ),
    _power_peer(1),
    _power_peer(2),
    _power_peer(4),
    Peer(
        name="batched_powerSGD_hook, rank 1",
        ours=lambda: (_power(hooks, 1), hooks.batched_powerSGD_hook),
        theirs=lambda: (_power(powerSGD_hook, 1), _renamed(_batched)),
        form="torch's, repaired",
    ),
    Peer(
        name="quantization_pertensor_hook",
        ours=_stateless(hooks.quantization_pertensor_hook),
        theirs=_stateless(_quantised(None)),
        form="torch's, repaired",
    ),
    Peer(
        name="quantization_perchannel_hook",
        ours=_stateless(hooks.quantization_perchannel_hook),
        theirs=_stateless(_quantised(512)),
        form="torch's, repaired",
        budget=0.05,
    ),
    Peer(
        name="no arithmetic, all-gather of as many bytes",
        ours=_stateless(_bytes_alone),
        theirs=_stateless(_quantised(512)),
        form="torch's quantization_perchannel_hook, repaired",
        budget=None,
    ),
    Peer(
        name="allgather_then_aggregate_hook",
        ours=_stateless(hooks.allgather_then_aggregate_hook),
        theirs=_stateless(_gathered),
        form="the formula",
    ),
    Peer(
        name="noop_hook",
        ours=_stateless(hooks.noop_hook),
        theirs=_stateless(debugging_hooks.noop_hook),
    ),
    Peer(
        name="post_localSGD_hook",
        ours=lambda: (hooks.PostLocalSGDState(None, dist.group.WORLD, 2), hooks.post_localSGD_hook),
        theirs=lambda: (
            post_localSGD_hook.PostLocalSGDState(None, dist.group.WORLD, 2),
            post_localSGD_hook.post_localSGD_hook,
        ),
    ),
    Peer(
        name="hook_then_optimizer(allreduce_hook)",
        ours=lambda: (
            None,
            hooks.hook_then_optimizer(hooks.allreduce_hook, hooks.OptimizerHookState(_Sgd())),
        ),
        theirs=lambda: (
            None,
            _renamed(optimizer_overlap_hooks._hook_then_optimizer(
                default_hooks.allreduce_hook, optimizer_overlap_hooks._OptimizerHookState(_Sgd())
            )),
        ),
    ),
    Peer(
        name="control: allreduce_hook on both sides",
        ours=_stateless(default_hooks.allreduce_hook),
        theirs=_stateless(default_hooks.allreduce_hook),
    ),
)  # fmt: skip
