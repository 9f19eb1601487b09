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
from ..tracing.traced_hook import Hook

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

_FAILING: dict[Any, tuple[str, str]] = {
    powerSGD_hook.powerSGD_hook: ("powerSGD_hook", "hangs with two or more buckets"),
    powerSGD_hook.batched_powerSGD_hook: ("batched_powerSGD_hook", "raises once it compresses"),
    quantization_hooks.quantization_pertensor_hook: ("quantization_pertensor_hook", "raises"),
    quantization_hooks.quantization_perchannel_hook: ("quantization_perchannel_hook", "raises"),
}
"""torch's hooks: their names, and what they do on gloo."""

_REFUSES_BF16 = not any(getattr(torch.version, build, None) for build in ("cuda", "hip", "xpu"))
"""DDP goes by the build, whatever the backend."""

_WRAPPERS = {
    f"{name}.<locals>.{name}_hook": name
    for name in ("fp16_compress_wrapper", "bf16_compress_wrapper")
}
"""Names of what torch's wrappers return, and theirs."""


def failure(hook: Hook, ddp: DistributedDataParallel) -> str | None:
    """Return how a hook fails on a model's group, where that is known.

    The text begins with the hook's name: "powerSGD_hook of torch hangs with two or more buckets".
    """
    found = _failure(hook)
    return None if found is None or not _on_gloo(ddp) else f"{found[0]} of torch {found[1]}"


def _failure(hook: Hook) -> tuple[str, str] | None:
    """Return the name of one of torch's hooks that fails, and how; also inside its wrappers."""
    if not inspect.isfunction(hook):
        return None
    if hook is default_hooks.bf16_compress_hook:
        return ("bf16_compress_hook", "is refused") if _REFUSES_BF16 else None
    if hook in _FAILING:
        return _FAILING[hook]
    wrapper = _WRAPPERS.get(getattr(hook, "__qualname__", ""))
    if wrapper is None or getattr(hook, "__module__", "") != default_hooks.__name__:
        return None
    if _REFUSES_BF16 and wrapper == "bf16_compress_wrapper":
        return wrapper, "is refused"
    return _failure(inspect.getclosurevars(hook).nonlocals["hook"])


def _on_gloo(ddp: DistributedDataParallel) -> bool:
    device = next(ddp.module.parameters()).device.type
    return group_info(ddp.process_group, device).backend == "gloo"
