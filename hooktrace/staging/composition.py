"""Hooks built of hooks.

    outer generator --yield from steps_of(inner, state, bucket)--> inner staged: its operations
                                                                   inner opaque: one HookCall
    composed(generator function, inner) --> StagedHook, multi-round and checked as the inner one

The driver sees the operations of the inner hook as if the outer one had yielded them, so its stages
are seen too.  Of an opaque hook, a function that returns a future, there is only the future.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .driver import Steps
from .hook import HookFunction, StagedHook
from .operations import HookCall

Hook = Callable[..., Any]


def steps_of(hook: Hook, state: Any, bucket: Any) -> Steps:
    """Return the steps of a hook, to be run inside another one; the result is the hook's.

    ``result = yield from steps_of(hook, state, bucket)``: the collectives of a staged hook are seen
    one by one; of an opaque hook, a function that returns a future, only the future is.
    """
    if isinstance(hook, StagedHook):
        return hook.steps(state, bucket)
    return _opaque_steps(hook, state, bucket)


def _opaque_steps(hook: Hook, state: Any, bucket: Any) -> Steps:
    return (yield HookCall(hook, state, bucket))


def composed(
    function: HookFunction,
    hook: Hook,
    *,
    name: str,
    made_by: tuple[Callable[..., StagedHook], tuple[Any, ...]],
    floating: bool = False,
    has_effects: bool = False,
) -> StagedHook:
    """Return a staged hook whose generator function runs ``hook`` with ``steps_of``.

    It is multi-round if ``hook`` is, and checks its state as ``hook`` does.  ``name``: of the
    parts, such as ``fp16_compress_wrapper(powerSGD_hook)``.  ``made_by``: the function and the
    arguments that make this very hook, by which it pickles.

    Raises ``TypeError`` for what is no hook, and for a traced one.
    """
    if not callable(hook):
        raise TypeError(
            f"{name} needs a hook, a callable that takes (state, bucket), not a "
            f"{type(hook).__name__}"
        )
    if getattr(hook, "is_traced", False):
        raise TypeError(
            f"{name} was given a hook that is traced already; "
            "trace the outermost hook: trace(wrapper(hook))"
        )
    declared = hook.declared if isinstance(hook, StagedHook) else {"has_opaque": True}
    declared["floating"] = floating or declared.get("floating", False)
    declared["has_effects"] = has_effects or declared.get("has_effects", False)
    return StagedHook(function, name=name, made_by=made_by, **declared)


def hook_name(hook: Hook) -> str:
    """Return the name by which a hook is shown."""
    return getattr(hook, "__qualname__", type(hook).__qualname__).split("<locals>.")[-1]
