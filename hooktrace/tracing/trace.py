"""``trace`` and ``instrument``: a hook in, a hook out, with the same name, signature and result."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..staging.hook import StagedHook
from .ddp_average import DDPAverage, ddp_allreduce
from .ddp_of import Found, ddp_of
from .settings import default_tracer
from .traced_hook import Hook, TracedHook
from .tracer import Tracer

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel


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

    ``ddp``: a ``DistributedDataParallel`` model, as it is, compiled or in Fabric's module, or what
    ``replicate`` returns.  Without a hook the gradients are averaged as DDP does without one, bit
    for bit.

    The same as ``ddp.register_comm_hook(state, trace(hook, ...))``, and records and layouts say
    ``layer3.conv.weight`` where they could otherwise only say ``4.2``.  Returns the traced hook;
    raises what ``trace`` and ``register_comm_hook`` raise, and ``TypeError`` for another model, and
    for a state without a hook.
    """
    found = ddp_of(ddp)
    if hook is None:
        hook, state = ddp_allreduce, _average(found, state)
    traced = trace(hook, tracer=tracer, model=model, local=local)
    try:
        if isinstance(traced.__wrapped__, StagedHook):
            traced.__wrapped__.check_state(state)
            traced.__wrapped__.check_model(found.module)
        found.queue.register_comm_hook(state, traced)
    except Exception:
        traced.withdraw()
        raise
    # Of a model that has refused the hook there is nothing to watch.
    traced.learn(found.ddp, found.module)
    return traced


def _average(found: Found, state: object) -> DDPAverage:
    if state is not None:
        raise TypeError("a state without a hook has no meaning; pass instrument the hook too")
    if found.ddp is None:
        raise TypeError(
            "a replicated module has no DDP model before its first forward pass; pass instrument a "
            "hook, such as hooktrace.hooks.allreduce_hook, or call it after that pass"
        )
    return DDPAverage(found.ddp)


def listed_hooks(ddp: DistributedDataParallel) -> list[tuple[Hook, Any]]:
    """Return torch's own list of a model's hooks and states, for it to be changed in place.

    A copy of a model has its list and none of the hooks: torch leaves the reducer's behind.
    """
    return ddp._comm_hooks
