"""All standard hooks in one list, and registration by name: a hook is added here and nowhere else.

    DDPCommHookType.X = HookEntry(name, hook, kind, what it does, how its state is made)
                          |
                          +--> hooktrace.hooks' names, ``hooktrace hooks``, the demo,
                               ``hooktrace check --standard``

What a hook demands of its state and of the model's gradients is checked before it is registered.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from .debugging import noop_hook
from .default import allreduce_hook, bf16_compress_hook, fp16_compress_hook
from .entry import HookEntry
from .gather import allgather_then_aggregate_hook
from .gossip import GossipGradState, gossip_grad_hook
from .local_sgd import PostLocalSGDState, post_localSGD_hook
from .powersgd import batched_powerSGD_hook, powerSGD_hook
from .powersgd_state import PowerSGDState
from .quantization import quantization_perchannel_hook, quantization_pertensor_hook

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

__all__ = [
    "DDPCommHookType",
    "GossipGradState",
    "HookEntry",
    "PostLocalSGDState",
    "PowerSGDState",
    "allgather_then_aggregate_hook",
    "allreduce_hook",
    "batched_powerSGD_hook",
    "bf16_compress_hook",
    "catalogue",
    "fp16_compress_hook",
    "gossip_grad_hook",
    "noop_hook",
    "post_localSGD_hook",
    "powerSGD_hook",
    "quantization_perchannel_hook",
    "quantization_pertensor_hook",
    "register_ddp_comm_hook",
]

_EARLY_POWER_SGD = {"start_powerSGD_iter": 2}  # the earliest that torch allows


class DDPCommHookType(Enum):
    """The standard hooks: torch's ten, under torch's names, and three more.

    As there, ``DDPCommHookType.ALLREDUCE.value(model=ddp, state=process_group)`` registers one.
    """

    ALLREDUCE = HookEntry(
        name="allreduce", hook=allreduce_hook, kind="lossless", what="all-reduce, the default"
    )
    FP16_COMPRESS = HookEntry(
        name="fp16", hook=fp16_compress_hook, kind="cast", what="all-reduce as float16"
    )
    BF16_COMPRESS = HookEntry(
        name="bf16", hook=bf16_compress_hook, kind="cast", what="all-reduce as bfloat16"
    )
    QUANTIZE_PER_TENSOR = HookEntry(
        name="quantize-per-tensor",
        hook=quantization_pertensor_hook,
        kind="quantised",
        what="all-gather of bytes, one scale a bucket",
    )
    QUANTIZE_PER_CHANNEL = HookEntry(
        name="quantize-per-channel",
        hook=quantization_perchannel_hook,
        kind="quantised",
        what="all-gather of bytes, a scale for each 512 elements",
    )
    POWER_SGD = HookEntry(
        name="powersgd",
        hook=powerSGD_hook,
        kind="low-rank",
        what="products of thin matrices, rank 1",
        make_state=partial(PowerSGDState, matrix_approximation_rank=1),
        check_options=_EARLY_POWER_SGD,
    )
    POWER_SGD_RANK2 = HookEntry(
        name="powersgd-rank2",
        hook=powerSGD_hook,
        kind="low-rank",
        what="products of thin matrices, rank 2",
        make_state=partial(PowerSGDState, matrix_approximation_rank=2),
        check_options=_EARLY_POWER_SGD,
    )
    BATCHED_POWER_SGD = HookEntry(
        name="batched-powersgd",
        hook=batched_powerSGD_hook,
        kind="low-rank",
        what="the whole bucket as one matrix, rank 1",
        make_state=partial(PowerSGDState, matrix_approximation_rank=1),
        check_options=_EARLY_POWER_SGD,
    )
    BATCHED_POWER_SGD_RANK2 = HookEntry(
        name="batched-powersgd-rank2",
        hook=batched_powerSGD_hook,
        kind="low-rank",
        what="the whole bucket as one matrix, rank 2",
        make_state=partial(PowerSGDState, matrix_approximation_rank=2),
        check_options=_EARLY_POWER_SGD,
    )
    NOOP = HookEntry(
        name="noop", hook=noop_hook, kind="local", what="no communication, for measuring"
    )
    ALLGATHER_THEN_AGGREGATE = HookEntry(
        name="allgather",
        hook=allgather_then_aggregate_hook,
        kind="lossless",
        what="all-gather, then a sum",
    )
    POST_LOCAL_SGD = HookEntry(
        name="post-local-sgd",
        hook=post_localSGD_hook,
        kind="local",
        what="all-reduce, later within a machine only",
        make_state=partial(PostLocalSGDState, subgroup=None, start_localSGD_iter=1_000),
        check_options={"start_localSGD_iter": 4},
    )
    GOSSIP_GRAD = HookEntry(
        name="gossip",
        hook=gossip_grad_hook,
        kind="local",
        what="average with one partner, another one each step",
        make_state=GossipGradState,
    )


def catalogue() -> tuple[HookEntry, ...]:
    """Return all standard hooks that need no other hook."""
    return tuple(member.value for member in DDPCommHookType)


def register_ddp_comm_hook(
    comm_hook_type: DDPCommHookType,
    model: DistributedDataParallel,
    state: Any = None,
    tracer: Tracer | None = None,
) -> None:
    """Register a standard hook on a DDP model.

    ``state``: a process group, ``None`` for the default one, of which the hook's state is made; or
    that state itself, such as a ``PowerSGDState``.  ``tracer``: trace the hook, with parameter
    names; without one it is registered as it is.

    Raises ``TypeError`` for a state or for gradients that the hook cannot work with, and what
    ``model.register_comm_hook`` raises.
    """
    if not isinstance(comm_hook_type, DDPCommHookType):
        raise TypeError(
            f"{comm_hook_type!r} is no hooktrace.hooks.DDPCommHookType; pass one of "
            f"{', '.join(DDPCommHookType.__members__)}"
        )
    comm_hook_type.value(model=model, state=state, tracer=tracer)
