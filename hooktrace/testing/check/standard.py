"""All standard hooks and torch's own, each with a state that works for it.

Ours are the catalogue's, with states that do a hook's own work from its first steps on
(``HookEntry.check_options``), so that the check sees it.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)

from ... import hooks
from ...hooks import catalogue
from ...hooks.sharded import SHARDED_HOOKS
from .spec import HookSpec, source_of

_HERE = "hooktrace.testing.check.standard"
_THEIRS = "torch.distributed.algorithms.ddp_comm_hooks"

fp16_wrapped = hooks.fp16_compress_wrapper(hooks.allreduce_hook)
bf16_wrapped = hooks.bf16_compress_wrapper(hooks.allreduce_hook)
torch_fp16_wrapped = default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)


def torch_power_sgd(group: Any) -> Any:
    """Return a state of torch's PowerSGD."""
    return powerSGD_hook.PowerSGDState(group, 2, 2)


def torch_local_sgd(group: Any) -> Any:
    """Return a state of torch's post-local SGD, which without a GPU cannot make its subgroup."""
    subgroup, _ = dist.new_subgroups(group_size=group.size())
    return post_localSGD_hook.PostLocalSGDState(group, subgroup, 4)


def standard_hooks() -> list[HookSpec]:
    """Return all of them: hooktrace's, those for FSDP too, then torch's."""
    ours = [
        HookSpec(
            name=entry.name,
            hook=pickle.dumps(entry.hook),
            make_state=pickle.dumps(partial(entry.make_state, **entry.check_options)),
        )
        for entry in catalogue()
    ]
    sharded = [
        HookSpec(name=entry.call, hook=source_of(entry.make(), "hook")) for entry in SHARDED_HOOKS
    ]
    return [
        *ours,
        *sharded,
        HookSpec(name="fp16 wrapper(allreduce)", hook=f"{_HERE}:fp16_wrapped"),
        HookSpec(name="bf16 wrapper(allreduce)", hook=f"{_HERE}:bf16_wrapped"),
        _torchs("default_hooks:allreduce_hook"),
        _torchs("default_hooks:fp16_compress_hook"),
        _torchs("default_hooks:bf16_compress_hook"),
        HookSpec(name="torch's fp16 wrapper(allreduce)", hook=f"{_HERE}:torch_fp16_wrapped"),
        _torchs("powerSGD_hook:powerSGD_hook", "torch_power_sgd"),
        _torchs("powerSGD_hook:batched_powerSGD_hook", "torch_power_sgd"),
        _torchs("quantization_hooks:quantization_pertensor_hook"),
        _torchs("quantization_hooks:quantization_perchannel_hook"),
        _torchs("debugging_hooks:noop_hook", local=True),
        _torchs("post_localSGD_hook:post_localSGD_hook", "torch_local_sgd", local=True),
    ]


def _torchs(place: str, state: str | None = None, *, local: bool = False) -> HookSpec:
    return HookSpec(
        name=f"torch's {place.partition(':')[2]}",
        hook=f"{_THEIRS}.{place}",
        make_state=state and f"{_HERE}:{state}",
        local=local,
    )
