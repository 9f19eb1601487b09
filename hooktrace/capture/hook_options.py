"""What a hook's state was made with, as a layout records it.

state --arguments of its class that it keeps under their names--> options: numbers and words
"""

from __future__ import annotations

import inspect
import math
from typing import Any

from ..records import Options

_MOST = 32
_LONGEST = 200


def options_of(state: Any) -> Options:
    """Return those of its class's arguments that a state has as plain values; never raises.

    ``(("matrix_approximation_rank", 2), ...)``: not tensors, groups, or what it counts.  A state
    that is a number or a word itself is ``(("state", ...),)``.
    """
    if _is_plain(state):
        return (("state", state),)
    try:
        names = list(inspect.signature(type(state)).parameters)[:_MOST]
        own = {name: getattr(state, name) for name in names if _is_own(state, name)}
    except Exception:  # a class in C tells no arguments; a property may raise anything
        return ()
    return tuple((name, value) for name, value in own.items() if _is_plain(value))


def _is_own(state: Any, name: str) -> bool:
    """Return whether it is the state's own; of a class it is a default, which may not be meant."""
    return name in getattr(state, "__dict__", ()) or inspect.isdatadescriptor(
        getattr(type(state), name, None)
    )


def _is_plain(value: Any) -> bool:
    kind = type(value)  # a number of another library's is none that a file has
    if kind is float:
        return math.isfinite(value)
    if kind is str:
        return len(value) <= _LONGEST
    return kind is bool or (kind is int and abs(value) < 1 << 63)
