"""What to check: a hook and what makes its state, by name or as pickled objects.

The asking process imports nothing of a hook that is named: whatever its module does when it is
imported, it does in a process that can be ended.
"""

from __future__ import annotations

import inspect
import pickle
import pkgutil
import re
from dataclasses import dataclass, replace
from typing import Any

from ...records.errors import UsageError


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
        """Return a hook and its state as given, by name or as objects.

        Raises ``TypeError`` for an object that another process cannot import, ``UsageError`` for a
        name that is none.
        """
        name = hook if isinstance(hook, str) else getattr(hook, "__qualname__", type(hook).__name__)
        state = None if make_state is None else _source_of(make_state, "state")
        return cls(name=name, hook=_source_of(hook, "hook"), make_state=state, local=local)

    def load(self) -> HookSpec:
        """Return it with its objects, imported; raises ``UsageError`` with what prevents that."""
        hook = _load(self.hook, "hook")
        make_state = None if self.make_state is None else _load(self.make_state, "state")
        if is_sharded(hook) and (make_state is not None or self.local):
            raise UsageError(
                f"{self.name} takes the place of one of FSDP's collectives and keeps its own "
                "state; leave --state and --local out"
            )
        local = self.local or bool(getattr(hook, "local", False))
        return replace(self, hook=hook, make_state=make_state, local=local)

    def new_state(self, group: Any) -> Any:
        """Return a new state, out of the process group if its factory asks for an argument."""
        if self.make_state is None:
            return None
        parameters = inspect.signature(self.make_state).parameters.values()
        needed = [p for p in parameters if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
        return self.make_state(*[group] if needed else [])


def is_sharded(hook: object) -> bool:
    """Return whether an object takes the place of one of FSDP's collectives; imports torch."""
    from ...fsdp.hooks import GatherHook, ScatterHook

    return isinstance(hook, (ScatterHook, GatherHook))


def _source_of(given: object, what: str) -> str | bytes:
    """Return how a hook or a state's factory gets to another process."""
    if isinstance(given, str):
        if not all(given.partition(":")):
            raise UsageError(
                f"{given!r} names no {what}; write package.module:attribute, such as "
                "my_package.hooks:my_hook"
            )
        return given
    try:
        pickled = pickle.dumps(given)
        if b"__main__" in pickled:
            raise ValueError("it is defined in the script that runs")
    except Exception as error:
        raise TypeError(
            f"the {what} cannot be sent to the ranks ({error}); define it at the top of a module, "
            "or pass its name as 'package.module:attribute'"
        ) from error
    return pickled


def _load(source: str | bytes, what: str) -> Any:
    """Return the object; raises ``UsageError`` if it cannot be imported, made or called."""
    named = source if isinstance(source, str) else f"the pickled {what}"
    try:
        found = pkgutil.resolve_name(source) if isinstance(source, str) else pickle.loads(source)
        # What makes a hook for FSDP's collectives: a class, or a function that says so.
        makes = getattr(found, "__mro__", getattr(found, "__annotations__", {}).get("return"))
        if re.search(r"\b(Scatter|Gather)Hook\b", str(makes)):
            found = found()
    except Exception as error:
        raise UsageError(
            f"{named} could not be loaded ({type(error).__name__}: {error}); run from its "
            "directory, or install it, and name an object, or what makes one without arguments"
        ) from error
    if not (callable(found) or is_sharded(found)):
        raise UsageError(
            f"{named} is a {type(found).__name__} and no {what}; name a hook, which takes (state, "
            "bucket), or a function that makes a state, since each model needs its own"
        )
    return found
