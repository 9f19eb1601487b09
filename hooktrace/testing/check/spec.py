"""What to check: a hook and what makes its state, by name or as pickled objects.

    "package.module:attribute" -----+
    a hook object --pickle---------+--> HookSpec --to the ranks' process--> load()

The one who asks for a check imports nothing of the hook's: whatever its module does when it is
imported, it does in a process that can be ended.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ...fsdp.hooks import GatherHook, ScatterHook
from ...records.errors import UsageError
from .judge import CaseResult

_SHARDED = ScatterHook | GatherHook


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSpec:
    """A hook to check.  ``name``: how the result calls it.  ``local``: see ``trace``.

    ``hook``: a hook of DDP's, or a ``ScatterHook`` or ``GatherHook`` for FSDP's collectives; like
    ``make_state`` it is a name or a pickle, and once it is loaded the object.
    """

    name: str
    hook: Any
    make_state: Any = None
    local: bool = False

    @classmethod
    def of(cls, hook: object, make_state: object = None, *, local: bool = False) -> HookSpec:
        """Return a hook and its state as given, by name or as objects; raises as ``source_of``."""
        name = hook if isinstance(hook, str) else getattr(hook, "__qualname__", repr(hook))
        return cls(
            name=hook.name if isinstance(hook, _SHARDED) else name,
            hook=source_of(hook, "hook"),
            make_state=None if make_state is None else source_of(make_state, "state"),
            local=local,
        )

    def load(self) -> HookSpec:
        """Return it with its objects, imported; raises ``UsageError`` with what prevents that."""
        hook = _made(_load(self.hook, "hook"))
        if isinstance(hook, _SHARDED):
            if self.make_state is not None or self.local:
                raise UsageError(
                    f"{self.name} takes the place of one of FSDP's collectives and keeps its own "
                    "state; leave --state and --local out"
                )
            return replace(self, hook=hook)
        if not callable(hook):
            raise UsageError(
                f"hook {self.name} is a {type(hook).__name__} and cannot be called; "
                "name a callable that takes (state, bucket)"
            )
        make_state = None if self.make_state is None else _load(self.make_state, "state")
        if make_state is not None and not callable(make_state):
            raise UsageError(
                f"the state of {self.name} is a {type(make_state).__name__}; name a function that "
                "makes one, since each model that is trained needs a state of its own"
            )
        local = self.local or bool(getattr(hook, "local", False))
        return replace(self, hook=hook, make_state=make_state, local=local)

    @property
    def is_sharded(self) -> bool:
        """Whether it takes the place of one of FSDP's collectives, and is no hook of DDP's."""
        return isinstance(self.hook, _SHARDED)

    def new_state(self, group: Any) -> Any:
        """Return a new state; a state belongs to one model.

        What makes it is called with the process group where it asks for an argument.  Raises
        ``UsageError`` where it raises.
        """
        if self.make_state is None:
            return None
        try:
            return self.make_state(group) if _asks_for_group(self.make_state) else self.make_state()
        except Exception as error:
            raise UsageError(
                f"the state of {self.name} could not be made "
                f"({type(error).__name__}: {error}); name a function that makes one without "
                "arguments, or out of the process group"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the host is asked to do.  ``cases``: keys, all for none.  ``timeout_s``: of one case."""

    hooks: tuple[HookSpec, ...]
    cases: tuple[str, ...]
    ranks: int
    timeout_s: float


Message: TypeAlias = tuple[int, CaseResult] | UsageError | None
"""The host's answer: a case's result with its hook's number, why there is none, or its end."""


def source_of(given: object, what: str) -> str | bytes:
    """Return how a hook or a state's factory gets to another process.

    Raises ``TypeError`` for an object that does not pickle by reference, ``UsageError`` for a name
    that is none.
    """
    if isinstance(given, str):
        if not all(given.partition(":")):
            raise UsageError(
                f"{given!r} names no {what}; write package.module:attribute, such as "
                "my_package.hooks:my_hook"
            )
        return given
    if not callable(given) and not isinstance(given, _SHARDED):
        raise TypeError(
            f"the {what} is a {type(given).__name__} and cannot be called; pass a callable, or its "
            "name as 'package.module:attribute'"
        )
    try:
        pickled = pickle.dumps(given)
    except Exception as error:
        raise TypeError(
            f"the {what} does not pickle ({error}), so it cannot be sent to the ranks; pass its "
            "name as 'package.module:attribute', or define it at the top of a module"
        ) from error
    if b"__main__" in pickled:
        raise TypeError(
            f"the {what} is defined in the script that runs, which the ranks cannot import; move "
            "it to a module of its own"
        )
    return pickled


def _load(source: str | bytes, what: str) -> Any:
    if isinstance(source, bytes):
        try:
            return pickle.loads(source)
        except Exception as error:
            raise UsageError(
                f"the {what} could not be loaded in the ranks' process "
                f"({type(error).__name__}: {error}); pass its name as 'package.module:attribute'"
            ) from error
    name, _, attribute = source.partition(":")
    try:
        module = importlib.import_module(name)
    except Exception as error:
        # What a module imports may be missing too, and then it says which.
        missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        reason = "there is no such module" if missing else f"{type(error).__name__}: {error}"
        raise UsageError(
            f"{name} could not be imported ({reason}); run from the directory that its package is "
            "in, or install it"
        ) from error
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        raise UsageError(
            f"{name} has no {attribute!r} ({error}); name a {what} that is in it"
        ) from error


def _made(hook: Any) -> Any:
    """Return the hook for FSDP's collectives that a class or a function makes; others as it is.

    A function says by its annotation that it makes one: a hook of DDP's is not called here.
    """
    returns = hook if isinstance(hook, type) else getattr(hook, "__annotations__", {}).get("return")
    named = str(getattr(returns, "__name__", returns)).rpartition(".")[2]
    is_kind = isinstance(returns, type) and issubclass(returns, _SHARDED)
    if not is_kind and named not in {"ScatterHook", "GatherHook"}:
        return hook
    try:
        return hook()
    except Exception as error:
        raise UsageError(
            f"{getattr(hook, '__qualname__', hook)} makes no hook without arguments "
            f"({type(error).__name__}: {error}); name a hook that was made, or a function that "
            "makes one"
        ) from error


def _asks_for_group(make_state: Callable[..., Any]) -> bool:
    """Return whether a factory cannot be called without an argument."""
    try:
        inspect.signature(make_state).bind()
    except TypeError:
        return True
    except ValueError:  # built in, without a signature
        return False
    return False
