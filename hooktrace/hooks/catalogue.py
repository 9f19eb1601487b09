"""All standard hooks in one list, and registration by name.

    catalogue() --> HookEntry(name, hook, kind, state factory)      DDPCommHookType.X.value is one
                      |
                      +-- entry(model=ddp, state=..., tracer=...)   register_ddp_comm_hook

What a hook demands of its state and of the model's gradients is checked before it is registered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..staging.hook import StagedHook
from ..tracing.traced_hook import instrument
from .debugging import noop_hook
from .default import allreduce_hook, bf16_compress_hook, fp16_compress_hook
from .gather import allgather_then_aggregate_hook
from .gossip import GossipGradState, gossip_grad_hook
from .local_sgd import PostLocalSGDState, post_localSGD_hook
from .powersgd import batched_powerSGD_hook, powerSGD_hook
from .powersgd_state import PowerSGDState
from .quantization import quantization_perchannel_hook, quantization_pertensor_hook

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

__all__ = ["DDPCommHookType", "HookEntry", "Kind", "catalogue", "register_ddp_comm_hook"]

Kind: TypeAlias = Literal["lossless", "cast", "quantised", "low-rank", "local"]
"""What a hook does to the gradients: averages them as they are; as 16-bit numbers; as bytes; as
products of thin matrices; or does not average over all ranks."""


def _the_group(process_group: dist.ProcessGroup | None) -> dist.ProcessGroup | None:
    return process_group


def _power_sgd(rank: int) -> Callable[..., PowerSGDState]:
    def make_state(process_group: dist.ProcessGroup | None, **options: Any) -> PowerSGDState:
        return PowerSGDState(process_group, matrix_approximation_rank=rank, **options)

    return make_state


def _post_local_sgd(
    process_group: dist.ProcessGroup | None,
    start_localSGD_iter: int = 1_000,  # noqa: N803
) -> PostLocalSGDState:
    return PostLocalSGDState(process_group, None, start_localSGD_iter)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEntry:
    """One standard hook.

    ``name``: on the command line.  ``make_state``: takes a process group (``None`` for the default
    one), and options where the state has any, and returns what to register the hook with.
    """

    name: str
    hook: StagedHook
    kind: Kind
    what: str
    make_state: Callable[..., Any] = _the_group

    @property
    def is_single_round(self) -> bool:
        """Whether the hook uses one collective a bucket."""
        return self.hook.multi_round is False

    def __call__(
        self, model: DistributedDataParallel, state: Any = None, tracer: Tracer | None = None
    ) -> None:
        """Register the hook; see ``register_ddp_comm_hook``."""
        if state is None or isinstance(state, dist.ProcessGroup):
            state = self.make_state(state)
        if tracer is not None:
            instrument(model, self.hook, state, tracer=tracer)
            return
        self.hook.check_state(state)
        self.hook.check_model(model.module)
        model.register_comm_hook(state, self.hook)


_ENTRIES = {
    "ALLREDUCE": HookEntry(
        name="allreduce", hook=allreduce_hook, kind="lossless", what="all-reduce, the default"
    ),
    "FP16_COMPRESS": HookEntry(
        name="fp16", hook=fp16_compress_hook, kind="cast", what="all-reduce as float16"
    ),
    "BF16_COMPRESS": HookEntry(
        name="bf16", hook=bf16_compress_hook, kind="cast", what="all-reduce as bfloat16"
    ),
    "QUANTIZE_PER_TENSOR": HookEntry(
        name="quantize-per-tensor",
        hook=quantization_pertensor_hook,
        kind="quantised",
        what="all-gather of bytes, one scale a bucket",
    ),
    "QUANTIZE_PER_CHANNEL": HookEntry(
        name="quantize-per-channel",
        hook=quantization_perchannel_hook,
        kind="quantised",
        what="all-gather of bytes, a scale for each 512 elements",
    ),
    "POWER_SGD": HookEntry(
        name="powersgd",
        hook=powerSGD_hook,
        kind="low-rank",
        what="products of thin matrices, rank 1",
        make_state=_power_sgd(1),
    ),
    "POWER_SGD_RANK2": HookEntry(
        name="powersgd-rank2",
        hook=powerSGD_hook,
        kind="low-rank",
        what="products of thin matrices, rank 2",
        make_state=_power_sgd(2),
    ),
    "BATCHED_POWER_SGD": HookEntry(
        name="batched-powersgd",
        hook=batched_powerSGD_hook,
        kind="low-rank",
        what="the whole bucket as one matrix, rank 1",
        make_state=_power_sgd(1),
    ),
    "BATCHED_POWER_SGD_RANK2": HookEntry(
        name="batched-powersgd-rank2",
        hook=batched_powerSGD_hook,
        kind="low-rank",
        what="the whole bucket as one matrix, rank 2",
        make_state=_power_sgd(2),
    ),
    "NOOP": HookEntry(
        name="noop", hook=noop_hook, kind="local", what="no communication, for measuring"
    ),
    "ALLGATHER_THEN_AGGREGATE": HookEntry(
        name="allgather",
        hook=allgather_then_aggregate_hook,
        kind="lossless",
        what="all-gather, then a sum",
    ),
    "POST_LOCAL_SGD": HookEntry(
        name="post-local-sgd",
        hook=post_localSGD_hook,
        kind="local",
        what="all-reduce, later within a machine only",
        make_state=_post_local_sgd,
    ),
    "GOSSIP_GRAD": HookEntry(
        name="gossip",
        hook=gossip_grad_hook,
        kind="local",
        what="average with one partner, another one each step",
        make_state=GossipGradState,
    ),
}


class DDPCommHookType(Enum):
    """The standard hooks: torch's ten, under torch's names, and three more.

    As there, ``DDPCommHookType.ALLREDUCE.value(model=ddp, state=process_group)`` registers one.
    """

    ALLREDUCE = _ENTRIES["ALLREDUCE"]
    FP16_COMPRESS = _ENTRIES["FP16_COMPRESS"]
    BF16_COMPRESS = _ENTRIES["BF16_COMPRESS"]
    QUANTIZE_PER_TENSOR = _ENTRIES["QUANTIZE_PER_TENSOR"]
    QUANTIZE_PER_CHANNEL = _ENTRIES["QUANTIZE_PER_CHANNEL"]
    POWER_SGD = _ENTRIES["POWER_SGD"]
    POWER_SGD_RANK2 = _ENTRIES["POWER_SGD_RANK2"]
    BATCHED_POWER_SGD = _ENTRIES["BATCHED_POWER_SGD"]
    BATCHED_POWER_SGD_RANK2 = _ENTRIES["BATCHED_POWER_SGD_RANK2"]
    NOOP = _ENTRIES["NOOP"]
    ALLGATHER_THEN_AGGREGATE = _ENTRIES["ALLGATHER_THEN_AGGREGATE"]
    POST_LOCAL_SGD = _ENTRIES["POST_LOCAL_SGD"]
    GOSSIP_GRAD = _ENTRIES["GOSSIP_GRAD"]


def catalogue() -> tuple[HookEntry, ...]:
    """Return all standard hooks that need no other hook."""
    return tuple(_ENTRIES.values())


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
