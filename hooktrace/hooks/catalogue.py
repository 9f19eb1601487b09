"""All standard hooks in one list, and registration by name.  It needs no torch until then.

    DDPCommHookType.X = HookEntry(name, where the hook is, kind, what it does, its state)
                          |
                          +--> ``hooktrace hooks``, the demo, ``hooktrace check --standard``

What a hook demands of its state and of the model's gradients is checked before it is registered.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from .entry import HookEntry

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from ..tracing.tracer import Tracer

_EARLY_POWER_SGD = {"start_powerSGD_iter": 2}  # the earliest that torch allows


class DDPCommHookType(Enum):
    """The standard hooks: torch's ten, under torch's names, and three more.

    As there, ``DDPCommHookType.ALLREDUCE.value(model=ddp, state=process_group)`` registers one.
    """

    ALLREDUCE = HookEntry(
        name="allreduce",
        hook_at="default:allreduce_hook",
        kind="lossless",
        what="all-reduce, the default",
    )
    FP16_COMPRESS = HookEntry(
        name="fp16", hook_at="default:fp16_compress_hook", kind="cast", what="all-reduce as float16"
    )
    BF16_COMPRESS = HookEntry(
        name="bf16",
        hook_at="default:bf16_compress_hook",
        kind="cast",
        what="all-reduce as bfloat16",
    )
    QUANTIZE_PER_TENSOR = HookEntry(
        name="quantize-per-tensor",
        hook_at="quantization:quantization_pertensor_hook",
        kind="quantised",
        what="all-gather of bytes, one scale a bucket",
    )
    QUANTIZE_PER_CHANNEL = HookEntry(
        name="quantize-per-channel",
        hook_at="quantization:quantization_perchannel_hook",
        kind="quantised",
        what="all-gather of bytes, a scale for each 512 elements",
    )
    POWER_SGD = HookEntry(
        name="powersgd",
        hook_at="powersgd:powerSGD_hook",
        kind="low-rank",
        what="products of thin matrices, rank 1",
        is_single_round=False,
        state_at="powersgd_state:PowerSGDState",
        state_options={"matrix_approximation_rank": 1},
        check_options=_EARLY_POWER_SGD,
    )
    POWER_SGD_RANK2 = HookEntry(
        name="powersgd-rank2",
        hook_at="powersgd:powerSGD_hook",
        kind="low-rank",
        what="products of thin matrices, rank 2",
        is_single_round=False,
        state_at="powersgd_state:PowerSGDState",
        state_options={"matrix_approximation_rank": 2},
        check_options=_EARLY_POWER_SGD,
    )
    BATCHED_POWER_SGD = HookEntry(
        name="batched-powersgd",
        hook_at="powersgd:batched_powerSGD_hook",
        kind="low-rank",
        what="the whole bucket as one matrix, rank 1",
        is_single_round=False,
        state_at="powersgd_state:PowerSGDState",
        state_options={"matrix_approximation_rank": 1},
        check_options=_EARLY_POWER_SGD,
    )
    BATCHED_POWER_SGD_RANK2 = HookEntry(
        name="batched-powersgd-rank2",
        hook_at="powersgd:batched_powerSGD_hook",
        kind="low-rank",
        what="the whole bucket as one matrix, rank 2",
        is_single_round=False,
        state_at="powersgd_state:PowerSGDState",
        state_options={"matrix_approximation_rank": 2},
        check_options=_EARLY_POWER_SGD,
    )
    NOOP = HookEntry(
        name="noop",
        hook_at="debugging:noop_hook",
        kind="local",
        what="no communication, for measuring",
    )
    ALLGATHER_THEN_AGGREGATE = HookEntry(
        name="allgather",
        hook_at="gather:allgather_then_aggregate_hook",
        kind="lossless",
        what="all-gather, then a sum",
    )
    POST_LOCAL_SGD = HookEntry(
        name="post-local-sgd",
        hook_at="local_sgd:post_localSGD_hook",
        kind="local",
        what="all-reduce, later within a machine only",
        state_at="local_sgd:PostLocalSGDState",
        state_options={"subgroup": None, "start_localSGD_iter": 1_000},
        check_options={"start_localSGD_iter": 4},
    )
    GOSSIP_GRAD = HookEntry(
        name="gossip",
        hook_at="gossip:gossip_grad_hook",
        kind="local",
        what="average with one partner, another one each step",
        state_at="gossip:GossipGradState",
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
