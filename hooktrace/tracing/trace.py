"""``trace`` and ``instrument``: a hook in, a hook out, with the same name, signature and result."""

from __future__ import annotations

import functools
import logging
from typing import Any, Literal

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..staging.hook import Hook, StagedHook
from ..staging.hook_checks import compiled_reducer
from . import hookless
from .ddp_average import DDPAverage, ddp_allreduce
from .traced_hook import TracedHook
from .tracer import Tracer, default_tracer

logger = logging.getLogger("hooktrace")

_INNER = ("_orig_mod", "_forward_module")
"""Where torch.compile and Fabric keep the module that they wrap."""

_FIXES = {
    "FSDP1": (
        "a model of FSDP1 calls no DDP hook, and shows its collectives to nobody; shard it with "
        "torch.distributed.fsdp.fully_shard and use hooktrace.fsdp.trace(model)"
    ),
    "FSDP2": "a sharded model calls no DDP hook; use hooktrace.fsdp.trace(model)",
    "DDP": "replicate() makes a DDP model late; use DistributedDataParallel in its place",
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
"""By what has sharded the model, or the name of a class that it is of; the first that fits."""


def _layers(model: Any) -> list[Any]:
    """Return a model, and what it has wrapped, which may have wrapped something itself."""
    layers = [model]
    while True:
        children = getattr(layers[-1], "__dict__", {}).get("_modules", {})
        inner = next((children[name] for name in _INNER if name in children), None)
        if inner is None:
            return layers
        layers.append(inner)


def ddp_of(model: Any) -> DistributedDataParallel:
    """Return the DDP model in a model.  Raises ``TypeError`` where there is none, with a fix."""
    layers = _layers(model)
    for found in layers:
        if isinstance(found, DistributedDataParallel):
            return found
    raise TypeError(_refusal(model, layers[-1]))


def unwrapped(model: Any) -> Any:
    """Return the module that torch.compile and Fabric have wrapped, unless FSDP has sharded it."""
    layers = _layers(model)
    return next((one for one in layers if "FSDPModule" in _kinds(one)), layers[-1])


def sharding_of(model: Any) -> Literal["FSDP1", "FSDP2"] | None:
    """Return what has sharded a model or a part of it; ``None``: nothing has."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    kinds = {kind for module in modules for kind in _kinds(module)}
    if "FullyShardedDataParallel" in kinds:
        return "FSDP1"
    return "FSDP2" if "FSDPModule" in kinds else None


def _kinds(model: Any) -> list[str]:
    return [kind.__name__ for kind in type(model).__mro__]


def _refusal(given: Any, found: Any) -> str:
    names = [sharding_of(found), *_kinds(found)]
    fix = next((text for name, text in _FIXES.items() if name in names), "")
    what = f"cannot instrument a {type(given).__name__}"
    if found is not given:
        what += f", which holds a {type(found).__name__}"
    return f"{what}: {fix or 'pass a torch.nn.parallel.DistributedDataParallel model'}"


def trace(
    hook: Hook, *, tracer: Tracer | None = None, model: str | None = None, local: bool = False
) -> TracedHook:
    """Wrap a DDP communication hook so that each of its calls is recorded.

    ``hook``: anything that can be called with ``(state, bucket)`` and returns a future: a staged
    hook, a function with any parameter names, a bound method, a ``functools.partial``, a lambda, a
    callable object.  A hook that is traced already is traced anew, not twice.  ``tracer``: where
    the records go, the process's default tracer (``hooktrace.default_tracer``) by default.
    ``model``: the model's name in all records, ``model0``, ``model1``, ... by default; a second
    model that uses the same traced hook is ``model0#2``.  ``local``: the hook's results differ
    between ranks by design, so that is no anomaly; staged hooks declare it themselves.

    Returns a callable that DDP accepts wherever it accepts the hook, with the hook's
    ``__name__``, ``__qualname__`` and ``__wrapped__``.  It pickles when the hook pickles; the copy
    reports to the default tracer of the process that loads it.

    Raises ``TypeError`` when the hook cannot be called.
    """
    if not callable(hook):
        raise TypeError(
            f"cannot trace a {type(hook).__name__}; pass the hook itself, "
            "a callable that takes (state, bucket)"
        )
    if isinstance(hook, TracedHook):
        hook = hook.__wrapped__
    if isinstance(hook, functools.partial) and isinstance(hook.func, StagedHook) and not hook.args:
        hook = hook.func.bind(**hook.keywords)
    local = local or getattr(hook, "local", False)
    return TracedHook(hook, default_tracer() if tracer is None else tracer, model, local)


def instrument(
    ddp: nn.Module,
    hook: Hook | None = None,
    state: object = None,
    *,
    tracer: Tracer | None = None,
    model: str | None = None,
    local: bool = False,
) -> TracedHook:
    """Register a traced hook on a DDP model and learn the names of its parameters.

    ``ddp``: a ``DistributedDataParallel`` model, as it is, compiled or in Fabric's module.  Without
    a hook the gradients are averaged as DDP does without one, bit for bit.

    As ``ddp.register_comm_hook(state, trace(hook, ...))``, but records say ``layer3.conv.weight``
    and not ``4.2``.  Returns the traced hook; raises what ``trace`` and ``register_comm_hook``
    raise, and ``TypeError`` for another model, and for a state without a hook.
    """
    found = ddp_of(ddp)
    if hook is not None:
        return _registered(found, trace(hook, tracer=tracer, model=model, local=local), state)
    if state is not None:
        raise TypeError("a state without a hook has no meaning; pass instrument the hook too")
    traced = trace(ddp_allreduce, tracer=tracer, model=model)
    if hookless.can_watch(found, default_tracer() if tracer is None else tracer):
        try:
            traced.record_without(found)
            return traced
        except RuntimeError as error:  # of the reducer, which is asked for its buckets
            logger.warning(
                "a model is traced with a hook, since its reducer does not list its buckets: %s",
                error,
            )
            traced.notices.stop_watching()
    return _registered(found, traced, DDPAverage(found))


def _registered(ddp: DistributedDataParallel, traced: TracedHook, state: object) -> TracedHook:
    """Return a traced hook that is a model's from here on."""
    if not hookless.has_buckets(ddp):
        raise compiled_reducer(traced.__qualname__)
    if isinstance(traced.__wrapped__, StagedHook):
        traced.__wrapped__.check_state(state)
        traced.__wrapped__.check_model(ddp.module)
    ddp.register_comm_hook(state, traced)
    # Of a model that has refused the hook there is nothing to watch.
    traced.learn(ddp)
    hookless.leave(ddp)  # what has recorded it without a hook
    return traced
