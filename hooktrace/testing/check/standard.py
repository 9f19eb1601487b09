"""All standard hooks and torch's own, each with a state that works for it.

PowerSGD begins to compress at its third step, the earliest that torch allows, so that the check
sees it compress; the other states are what ``catalogue`` makes.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)

from ... import hooks
from ...hooks import catalogue
from .spec import HookSpec

__all__ = ["standard_hooks"]

_HERE = "hooktrace.testing.check.standard"
_THEIRS = "torch.distributed.algorithms.ddp_comm_hooks"

fp16_wrapped = hooks.fp16_compress_wrapper(hooks.allreduce_hook)
bf16_wrapped = hooks.bf16_compress_wrapper(hooks.allreduce_hook)
torch_fp16_wrapped = default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)

_STATES = {"post-local-sgd": "local_sgd_state", "gossip": "gossip_state"}


def power_sgd_rank1(group: Any) -> hooks.PowerSGDState:
    """Return a state of hooktrace's PowerSGD."""
    return hooks.PowerSGDState(group, 1, 2)


def power_sgd_rank2(group: Any) -> hooks.PowerSGDState:
    """Return a state of hooktrace's PowerSGD."""
    return hooks.PowerSGDState(group, 2, 2)


def gossip_state(group: Any) -> hooks.GossipGradState:
    """Return a state of ``gossip_grad_hook``."""
    return hooks.GossipGradState(group)


def local_sgd_state(group: Any) -> hooks.PostLocalSGDState:
    """Return a state of hooktrace's post-local SGD that soon leaves the other machines alone."""
    return hooks.PostLocalSGDState(group, None, 4)


def torch_power_sgd(group: Any) -> Any:
    """Return a state of torch's PowerSGD."""
    return powerSGD_hook.PowerSGDState(group, 2, 2)


def torch_local_sgd(group: Any) -> Any:
    """Return a state of torch's post-local SGD, which without a GPU cannot make its subgroup."""
    subgroup, _ = dist.new_subgroups(group_size=group.size())
    return post_localSGD_hook.PostLocalSGDState(group, subgroup, 4)


def standard_hooks() -> list[HookSpec]:
    """Return all of them: hooktrace's, then torch's."""
    return [*_ours(), *_torchs()]


def _ours() -> list[HookSpec]:
    specs = []
    for entry in catalogue():
        state = _STATES.get(entry.name)
        if entry.kind == "low-rank":
            state = "power_sgd_rank2" if entry.name.endswith("rank2") else "power_sgd_rank1"
        specs.append(
            HookSpec(
                name=entry.name,
                hook=f"hooktrace.hooks:{entry.hook.__qualname__}",
                make_state=state and f"{_HERE}:{state}",
            )
        )
    return [
        *specs,
        HookSpec(name="fp16 wrapper(allreduce)", hook=f"{_HERE}:fp16_wrapped"),
        HookSpec(name="bf16 wrapper(allreduce)", hook=f"{_HERE}:bf16_wrapped"),
    ]


def _torchs() -> list[HookSpec]:
    def spec(place: str, state: str | None = None, *, local: bool = False) -> HookSpec:
        return HookSpec(
            name=f"torch's {place.partition(':')[2]}",
            hook=f"{_THEIRS}.{place}",
            make_state=state and f"{_HERE}:{state}",
            local=local,
        )

    return [
        spec("default_hooks:allreduce_hook"),
        spec("default_hooks:fp16_compress_hook"),
        spec("default_hooks:bf16_compress_hook"),
        HookSpec(name="torch's fp16 wrapper(allreduce)", hook=f"{_HERE}:torch_fp16_wrapped"),
        spec("powerSGD_hook:powerSGD_hook", "torch_power_sgd"),
        spec("powerSGD_hook:batched_powerSGD_hook", "torch_power_sgd"),
        spec("quantization_hooks:quantization_pertensor_hook"),
        spec("quantization_hooks:quantization_perchannel_hook"),
        spec("debugging_hooks:noop_hook", local=True),
        spec("post_localSGD_hook:post_localSGD_hook", "torch_local_sgd", local=True),
    ]
