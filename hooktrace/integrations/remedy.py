"""torch's hooks that hang or raise on gloo, and hooktrace's of the same names in their place.

hook --of torch's that fail?, on gloo?--> HOOKTRACE_FIX: hooktrace's, with the same state
                                          else: the log says that there is one
"""

from __future__ import annotations

import inspect
import logging
import os
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)

from .. import hooks
from ..staging.groups import group_info
from ..tracing.settings import is_on
from ..tracing.traced_hook import Hook

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger("hooktrace")

_FAILING: dict[Any, tuple[str, str]] = {
    powerSGD_hook.powerSGD_hook: ("powerSGD_hook", "hangs with two or more buckets"),
    powerSGD_hook.batched_powerSGD_hook: ("batched_powerSGD_hook", "raises once it compresses"),
    quantization_hooks.quantization_pertensor_hook: ("quantization_pertensor_hook", "raises"),
    quantization_hooks.quantization_perchannel_hook: ("quantization_perchannel_hook", "raises"),
}
"""torch's hooks: the name of hooktrace's, and what torch's does on gloo."""

_REFUSES_BF16 = not any(getattr(torch.version, build, None) for build in ("cuda", "hip", "xpu"))
"""DDP goes by the build, whatever the backend."""

_WRAPPERS = {
    f"{name}.<locals>.{name}_hook": name
    for name in ("fp16_compress_wrapper", "bf16_compress_wrapper")
}
"""Names of what torch's wrappers return, and theirs."""


def remedied(hook: Hook, ddp: DistributedDataParallel) -> Hook:
    """Return the hook to register on a model: the same, or hooktrace's in its place."""
    found = _remedy(hook)
    if found is None or not _on_gloo(ddp):
        return hook
    cure, how = found
    name = getattr(hook, "__name__", "hook")
    if is_on(os.environ.get("HOOKTRACE_FIX") or "0"):
        logger.warning("hooktrace's %s runs in place of torch's, which %s on gloo", name, how)
        return cure
    logger.warning(
        "torch's %s %s on gloo; set HOOKTRACE_FIX=1, and hooktrace's runs in its place",
        name,
        how,
    )
    return hook


def failure(hook: Hook, ddp: DistributedDataParallel) -> str | None:
    """Return how a hook that is registered fails, where a remedy is known."""
    found = _remedy(hook)
    return None if found is None or not _on_gloo(ddp) else found[1]


def _remedy(hook: Hook) -> tuple[Hook, str] | None:
    """Return hooktrace's hook for one of torch's that fails, and how that fails."""
    if not inspect.isfunction(hook):
        return None
    if hook is default_hooks.bf16_compress_hook:
        return (hooks.bf16_compress_hook, "is refused") if _REFUSES_BF16 else None
    if hook in _FAILING:
        name, how = _FAILING[hook]
        return getattr(hooks, name), how
    wrapper = _WRAPPERS.get(getattr(hook, "__qualname__", ""))
    if wrapper is None or getattr(hook, "__module__", "") != default_hooks.__name__:
        return None
    inner = inspect.getclosurevars(hook).nonlocals["hook"]
    cure, how = _remedy(inner) or (inner, "")
    if _REFUSES_BF16 and wrapper == "bf16_compress_wrapper":
        how = "is refused"
    return (getattr(hooks, wrapper)(cure), how) if how else None


def _on_gloo(ddp: DistributedDataParallel) -> bool:
    device = next(ddp.module.parameters()).device.type
    return group_info(ddp.process_group, device).backend == "gloo"
