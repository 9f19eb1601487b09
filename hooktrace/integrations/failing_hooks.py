"""torch's hooks that hang or raise on gloo: how each fails.  hooktrace has one of the same name."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)

from ..staging.groups import group_info
from ..staging.hook import Hook

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

_FAILING: dict[Any, str] = {
    powerSGD_hook.powerSGD_hook: "hangs with two or more buckets",
    powerSGD_hook.batched_powerSGD_hook: "raises once it compresses",
    quantization_hooks.quantization_pertensor_hook: "raises",
    quantization_hooks.quantization_perchannel_hook: "raises",
}
"""torch's hooks, and what they do on gloo."""

_REFUSES_BF16 = not any(getattr(torch.version, build, None) for build in ("cuda", "hip", "xpu"))
"""DDP goes by the build, whatever the backend."""


def failure(hook: Hook, ddp: DistributedDataParallel) -> str | None:
    """Return how a hook fails on a model's group, where that is known.

    The text begins with the hook's name: "powerSGD_hook of torch hangs with two or more buckets".
    """
    device = next(ddp.module.parameters()).device.type
    found = _failure(hook)
    is_gloo = found is not None and group_info(ddp.process_group, device).backend == "gloo"
    return found if is_gloo else None


def _failure(hook: Any) -> str | None:
    """Say how one of torch's hooks fails; also inside its wrappers."""
    if not inspect.isfunction(hook):
        return None
    if hook in _FAILING:
        return f"{hook.__name__} of torch {_FAILING[hook]}"
    if hook.__module__ != default_hooks.__name__:
        return None
    name = hook.__qualname__.partition(".<locals>.")[0]
    if _REFUSES_BF16 and name in ("bf16_compress_hook", "bf16_compress_wrapper"):
        return f"{name} of torch is refused"
    return _failure(inspect.getclosurevars(hook).nonlocals.get("hook"))
