"""The DDP model in what people hold, or why there is none.

DDP, torch.compile(ddp), Fabric's module around it --> that DDP
replicate(module) --> the DDP that it makes in its first forward pass, and a queue until then
a sharded model, DataParallel, a bare module, a Trainer ... --> TypeError with the remedy
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from torch import nn
from torch.nn.parallel import DistributedDataParallel

_REPLICATE = "torch.distributed._composable.replicate"

_INNER = ("_orig_mod", "_forward_module")
"""Where torch.compile and Fabric keep the module that they wrap."""

_SHARDED = {
    "FSDP1": (
        "a model of FSDP1 calls no DDP hook, and shows its collectives to nobody; shard it with "
        "torch.distributed.fsdp.fully_shard and use hooktrace.fsdp.trace(model)"
    ),
    "FSDP2": "a sharded model calls no DDP hook; use hooktrace.fsdp.trace(model)",
}

_REMEDIES = {
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
        inner = _inner(found)
        if inner is None:
            raise TypeError(_refusal(model, found))
        found = inner
    return Found(found, found, found.module)


def unwrapped(model: Any) -> Any:
    """Return the module that torch.compile and Fabric have wrapped, or the model itself.

    A wrapper that FSDP has sharded is the model.
    """
    while (inner := _inner(model)) is not None and "FSDPModule" not in _kinds(model):
        model = inner
    return model


def sharding_of(model: Any) -> Literal["FSDP1", "FSDP2"] | None:
    """Return what has sharded a model or a part of it; ``None``: nothing has."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    kinds = {kind for module in modules for kind in _kinds(module)}
    if "FullyShardedDataParallel" in kinds:
        return "FSDP1"
    return "FSDP2" if "FSDPModule" in kinds else None


def _kinds(model: Any) -> list[str]:
    return [kind.__name__ for kind in type(model).__mro__]


def _inner(model: Any) -> Any:
    children = getattr(model, "__dict__", {}).get("_modules", {})
    return next((children[name] for name in _INNER if name in children), None)


def _is_replicated(model: Any) -> bool:
    return any((k.__module__, k.__name__) == (_REPLICATE, "DDP") for k in type(model).__mro__)


def _of_replicated(module: Any) -> Found:
    from torch.distributed._composable.replicate import replicate

    state: Any = replicate.state(module)
    ddp = getattr(state, "_ddp", None)
    return Found(ddp, ddp or module, module)


def _refusal(given: Any, found: Any) -> str:
    names = _kinds(found)
    remedy = next((text for name, text in _REMEDIES.items() if name in names), "")
    if (sharding := sharding_of(found)) is not None:
        remedy = _SHARDED[sharding]
    what = f"cannot instrument a {type(given).__name__}"
    if found is not given:
        what += f", which holds a {type(found).__name__}"
    return f"{what}: {remedy or 'pass a torch.nn.parallel.DistributedDataParallel model'}"
