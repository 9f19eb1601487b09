"""The DDP model in what people hold, or why there is none.

DDP, torch.compile(ddp), Fabric's module around it --> that DDP
replicate(module) --> the DDP that it makes in its first forward pass, and a queue until then
FSDP, DataParallel, a bare module, a Trainer ... --> TypeError with the remedy
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn
from torch.nn.parallel import DistributedDataParallel

_REPLICATE = "torch.distributed._composable.replicate"

_INNER = ("_orig_mod", "_forward_module")
"""Where torch.compile and Fabric keep the module that they wrap."""

_FSDP = "a sharded model calls no DDP hook; hooktrace traces DistributedDataParallel"
_REMEDIES = {
    "FullyShardedDataParallel": _FSDP,
    "FSDPModule": "a sharded model calls no DDP hook; use hooktrace.fsdp.trace(model)",
    "DataParallel": "it sends no gradients between processes; use DistributedDataParallel",
    "Accelerator": (
        "pass it kwargs_handlers=[hooktrace.integrations.accelerate.DDPKwargs(...)], or instrument "
        "the model that its prepare() returns"
    ),
    "LightningModule": "use callbacks=[hooktrace.integrations.lightning.Trace(hook)]",
    "Trainer": (
        "transformers' takes hooktrace.integrations.transformers.trace(trainer, hook), "
        "Lightning's callbacks=[hooktrace.integrations.lightning.Trace(hook)]"
    ),
    "DeepSpeedEngine": "DeepSpeed communicates without DDP's hooks",
    "Module": "wrap it first: instrument(DistributedDataParallel(model), hook)",
}
"""By the name of a class, or of one that it inherits from; the first that fits."""


class Found(NamedTuple):
    """A DDP model; ``queue``: what takes hooks until there is one, in its place.

    ``module``: whose parameters have the names that people know.
    """

    ddp: DistributedDataParallel | None
    queue: Any
    module: nn.Module


def ddp_of(model: Any) -> Found:
    """Return the DDP model in a model.  Raises ``TypeError`` where there is none, with a remedy."""
    found = model
    while not isinstance(found, DistributedDataParallel):
        if _is_replicated(found):
            return _of_replicated(found)
        children = getattr(found, "__dict__", {}).get("_modules", {})
        inner = next((children[name] for name in _INNER if name in children), None)
        if inner is None:
            raise TypeError(_refusal(model, found))
        found = inner
    return Found(found, found, found.module)


def _is_replicated(model: Any) -> bool:
    return any((k.__module__, k.__name__) == (_REPLICATE, "DDP") for k in type(model).__mro__)


def _of_replicated(module: Any) -> Found:
    from torch.distributed._composable.replicate import replicate

    state: Any = replicate.state(module)
    ddp = getattr(state, "_ddp", None)
    return Found(ddp, ddp or module, module)


def _refusal(given: Any, found: Any) -> str:
    names = [kind.__name__ for kind in type(found).__mro__]
    remedy = next((text for name, text in _REMEDIES.items() if name in names), "")
    what = f"cannot instrument a {type(given).__name__}"
    if found is not given:
        what += f", which holds a {type(found).__name__}"
    return f"{what}: {remedy or 'pass a torch.nn.parallel.DistributedDataParallel model'}"
