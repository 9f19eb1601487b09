"""All standard hooks in one list, and registration by name.  It needs no torch until then.

DDPCommHookType.X = HookEntry(name, the hook's, kind, what it does, its state)
                      |
                      +--> ``hooktrace hooks``, the demo
                      +--> candidates(), with other options too: ``hooktrace tune``, HOOKTRACE_HOOK

HookEntry(model=ddp, state=..., tracer=...) --checked--> ddp.register_comm_hook
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

    from ..staging.hook import StagedHook
    from ..tracing.tracer import Tracer

Kind: TypeAlias = Literal["lossless", "cast", "quantised", "low-rank", "local"]
"""What a hook does to the gradients: averages them as they are; as 16-bit numbers; as bytes; as
products of thin matrices; or does not average over all ranks."""


@dataclass(frozen=True, slots=True)
class HookEntry:
    """One standard hook.

    ``name``: on the command line.  ``hook_name`` and ``state_name``: of hook and state's class in
    ``hooktrace.hooks``; without ``state_name`` the state is the process group.  ``state_options``:
    what the class is given.  ``check_options``: with which tests and ``hooktrace tune`` make the
    state, so that a hook that begins as a plain average does its own work within a few steps.
    ``hook_options``: what the hook is bound to (``bind``).
    """

    name: str
    hook_name: str
    kind: Kind
    what: str
    state_name: str | None = None
    state_options: Mapping[str, Any] = field(default_factory=dict)
    check_options: Mapping[str, Any] = field(default_factory=dict)
    hook_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_single_round(self) -> bool:
        """Whether the hook uses one collective a bucket; of a product each factor takes one."""
        return self.kind != "low-rank"

    @property
    def hook(self) -> StagedHook:
        """The hook; the first use imports torch."""
        hook: StagedHook = _public(self.hook_name)
        return hook.bind(**self.hook_options) if self.hook_options else hook

    @property
    def call(self) -> str:
        """Hook and state as one writes them in a call of ``instrument``."""
        hook = f"hooktrace.hooks.{self.hook_name}"
        if self.hook_options:
            hook += f".bind({', '.join(f'{k}={v!r}' for k, v in self.hook_options.items())})"
        if self.state_name is None:
            return f"{hook}, None"
        options = "".join(f", {k}={v!r}" for k, v in self.state_options.items())
        return f"{hook}, hooktrace.hooks.{self.state_name}(None{options})"

    def make_state(self, process_group: Any = None, **options: Any) -> Any:
        """Return what to register the hook with, for a group (``None``: the default one)."""
        if self.state_name is None:
            return process_group
        return _public(self.state_name)(process_group, **{**self.state_options, **options})

    def __call__(
        self, model: DistributedDataParallel, state: Any = None, tracer: Tracer | None = None
    ) -> None:
        """Register the hook; see ``register_ddp_comm_hook``."""
        from torch.distributed import ProcessGroup

        from ..tracing.trace import instrument

        if state is None or isinstance(state, ProcessGroup):
            state = self.make_state(state)
        if tracer is not None:
            instrument(model, self.hook, state, tracer=tracer)
            return
        self.hook.check_state(state)
        self.hook.check_model(model.module)
        model.register_comm_hook(state, self.hook)


def _public(name: str) -> Any:
    return getattr(import_module(__package__), name)


def _power_sgd(name: str, hook_name: str, what: str, rank: int) -> HookEntry:
    return HookEntry(
        name,
        hook_name,
        "low-rank",
        f"{what}, rank {rank}",
        "PowerSGDState",
        {"matrix_approximation_rank": rank},
        {"start_powerSGD_iter": 2},  # the earliest that torch allows
    )


_MATRICES = "products of thin matrices"
_SQUARE = "the whole bucket as one matrix"


class DDPCommHookType(Enum):
    """The standard hooks: torch's ten, under torch's names, and three more.

    As there, ``DDPCommHookType.ALLREDUCE.value(model=ddp, state=process_group)`` registers one.
    """

    ALLREDUCE = HookEntry("allreduce", "allreduce_hook", "lossless", "all-reduce, the default")
    FP16_COMPRESS = HookEntry("fp16", "fp16_compress_hook", "cast", "all-reduce as float16")
    BF16_COMPRESS = HookEntry("bf16", "bf16_compress_hook", "cast", "all-reduce as bfloat16")
    QUANTIZE_PER_TENSOR = HookEntry(
        "quantize-per-tensor",
        "quantization_pertensor_hook",
        "quantised",
        "all-gather of bytes, one scale a bucket",
    )
    QUANTIZE_PER_CHANNEL = HookEntry(
        "quantize-per-channel",
        "quantization_perchannel_hook",
        "quantised",
        "all-gather of bytes, a scale for each 512 elements",
    )
    POWER_SGD = _power_sgd("powersgd", "powerSGD_hook", _MATRICES, 1)
    POWER_SGD_RANK2 = _power_sgd("powersgd-rank2", "powerSGD_hook", _MATRICES, 2)
    BATCHED_POWER_SGD = _power_sgd("batched-powersgd", "batched_powerSGD_hook", _SQUARE, 1)
    BATCHED_POWER_SGD_RANK2 = _power_sgd(
        "batched-powersgd-rank2", "batched_powerSGD_hook", _SQUARE, 2
    )
    NOOP = HookEntry("noop", "noop_hook", "local", "no communication, for measuring")
    ALLGATHER_THEN_AGGREGATE = HookEntry(
        "allgather", "allgather_then_aggregate_hook", "lossless", "all-gather, then a sum"
    )
    POST_LOCAL_SGD = HookEntry(
        "post-local-sgd",
        "post_localSGD_hook",
        "local",
        "all-reduce, later within a machine only",
        "PostLocalSGDState",
        {"subgroup": None, "start_localSGD_iter": 1_000},
        {"start_localSGD_iter": 4},
    )
    GOSSIP_GRAD = HookEntry(
        "gossip",
        "gossip_grad_hook",
        "local",
        "average with one partner, another one each step",
        "GossipGradState",
    )


def catalogue() -> tuple[HookEntry, ...]:
    """Return all standard hooks that need no other hook."""
    return tuple(member.value for member in DDPCommHookType)


_WORK: Mapping[Kind, int] = {"lossless": 0, "cast": 1, "quantised": 2, "low-rank": 3}


def candidates() -> tuple[HookEntry, ...]:
    """Return all hooks that average, with the options that are worth a try; the cheapest first.

    Those of kind ``local`` are none: they do not average over all ranks, so a step that they make
    shorter is no replacement for the job's own step.
    """
    channels = DDPCommHookType.QUANTIZE_PER_CHANNEL.value
    # By the entry that each comes after.
    others = {
        channels.name: replace(
            channels, name=f"{channels.name}-128", hook_options={"bucket_size": 128}
        ),
        DDPCommHookType.POWER_SGD_RANK2.value.name: _power_sgd(
            "powersgd-rank4", "powerSGD_hook", _MATRICES, 4
        ),
    }
    entries = sorted((e for e in catalogue() if e.kind in _WORK), key=lambda e: _WORK[e.kind])
    found = (one for entry in entries for one in (entry, others.get(entry.name)))
    return tuple(one for one in found if one is not None)


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
