"""What to check: a hook and what makes its state, by name or as pickled objects.

The asking process imports nothing of a hook that is named: whatever its module does when it is
imported, it does in a process that can be ended.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pickle
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from ...records.errors import UsageError
from .result import CaseResult

_NAME = "its name as 'package.module:attribute'"


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
    def of(cls, hook: Any, make_state: object = None, *, local: bool = False) -> HookSpec:
        """Return a hook and its state as given, by name or as objects; raises as ``source_of``."""
        name = hook if isinstance(hook, str) else getattr(hook, "__qualname__", repr(hook))
        if is_sharded(hook):
            name = hook.name
        state = None if make_state is None else source_of(make_state, "state")
        return cls(name=name, hook=source_of(hook, "hook"), make_state=state, local=local)

    def load(self) -> HookSpec:
        """Return it with its objects, imported; raises ``UsageError`` with what prevents that."""
        hook = _made(_load(self.hook, "hook"))
        make_state = None if self.make_state is None else _load(self.make_state, "state")
        if is_sharded(hook) and (make_state is not None or self.local):
            raise UsageError(
                f"{self.name} takes the place of one of FSDP's collectives and keeps its own "
                "state; leave --state and --local out"
            )
        for what, given, wanted in (
            ("hook", hook, "a callable that takes (state, bucket)"),
            ("state", make_state, "a function that makes one, since each model needs its own"),
        ):
            if not (given is None or callable(given) or is_sharded(given)):
                kind = type(given).__name__
                raise UsageError(f"the {what} of {self.name} is a {kind}; name {wanted}")
        local = self.local or bool(getattr(hook, "local", False))
        return replace(self, hook=hook, make_state=make_state, local=local)

    def new_state(self, group: Any) -> Any:
        """Return a new state, out of the process group if its factory asks for an argument.

        Raises ``UsageError`` if that fails.
        """
        if self.make_state is None:
            return None
        try:
            return self.make_state(*[group] * _needs_argument(self.make_state))
        except Exception as error:
            raise UsageError(
                f"the state of {self.name} could not be made "
                f"({type(error).__name__}: {error}); name a function that makes one without "
                "arguments, or out of the process group"
            ) from error


class Job(NamedTuple):
    """What the host is asked to do.  ``cases``: keys, all for none.  ``timeout_s``: of one case."""

    hooks: tuple[HookSpec, ...]
    cases: tuple[str, ...]
    ranks: int
    timeout_s: float


Message: TypeAlias = tuple[int, CaseResult] | UsageError | None
"""The host's answer: a case's result with its hook's number, why there is none, or its end."""


def source_of(given: object, what: str) -> str | bytes:
    """Return how a hook or a state's factory gets to another process.

    Raises ``TypeError`` for an object that another process cannot import, ``UsageError`` for a name
    that is none.
    """
    if isinstance(given, str):
        if not all(given.partition(":")):
            raise UsageError(
                f"{given!r} names no {what}; write package.module:attribute, such as "
                "my_package.hooks:my_hook"
            )
        return given
    if not callable(given) and not is_sharded(given):
        kind = type(given).__name__
        raise TypeError(f"the {what} is a {kind} and cannot be called; pass a callable, or {_NAME}")
    try:
        pickled = pickle.dumps(given)
    except Exception as error:
        raise TypeError(
            f"the {what} does not pickle ({error}), so it cannot be sent to the ranks; pass "
            f"{_NAME}, or define it at the top of a module"
        ) from error
    if b"__main__" in pickled:
        raise TypeError(
            f"the {what} is defined in the script that runs, which the ranks cannot import; move "
            "it to a module of its own"
        )
    return pickled


def is_sharded(hook: object) -> bool:
    """Return whether it takes the place of one of FSDP's collectives; imports torch."""
    if isinstance(hook, str):
        return False
    from ...fsdp.hooks import GatherHook, ScatterHook

    return isinstance(hook, (ScatterHook, GatherHook))


def _load(source: str | bytes, what: str) -> Any:
    """Return the object; raises ``UsageError`` if it cannot be imported."""
    try:
        if isinstance(source, bytes):
            return pickle.loads(source)
        name, _, attribute = source.partition(":")
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(name))
    except Exception as error:
        named = source if isinstance(source, str) else f"the pickled {what}"
        raise UsageError(
            f"{named} could not be imported ({type(error).__name__}: {error}); run from the "
            f"directory that its package is in, or install it, and name a {what} that is in it"
        ) from error


def _made(hook: Any) -> Any:
    """Return the hook for FSDP's collectives that a class or a function makes; others as it is.

    A function says by its annotation that it makes one: a hook of DDP's is not called here.
    """
    returns = getattr(hook, "__annotations__", {}).get("return")
    kinds = [base.__name__ for base in hook.__mro__] if isinstance(hook, type) else [str(returns)]
    if not {kind.rpartition(".")[2].strip("'>") for kind in kinds} & {"ScatterHook", "GatherHook"}:
        return hook
    try:
        return hook()
    except Exception as error:
        raise UsageError(
            f"{getattr(hook, '__qualname__', hook)} makes no hook without arguments "
            f"({type(error).__name__}: {error}); name a hook that was made, or a function that "
            "makes one"
        ) from error


def _needs_argument(make_state: Any) -> bool:
    """Return whether a factory cannot be called without an argument."""
    try:
        inspect.signature(make_state).bind()
    except TypeError:
        return True
    except ValueError:  # built in, without a signature
        return False
    return False
