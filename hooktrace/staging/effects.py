"""Whether a hook may keep something between calls beside its state: then it is not run on trial."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup

_HARMLESS = (
    *(type(None), bool, int, float, str, bytes, type, types.ModuleType),
    *(torch.dtype, ProcessGroup),
)


def keeps_something(value: Any, depth: int = 3) -> bool:
    """Return whether a function's closure or options may hold what it changes.

    A staged hook inside says it of itself (``has_effects``).
    """
    if isinstance(value, functools.partial):
        return any(keeps_something(v, depth) for v in (value.func, *value.keywords.values()))
    if isinstance(value, tuple):
        return any(keeps_something(v, depth) for v in value)
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
        cells = getattr(value, "__closure__", None) or ()
        return depth == 0 or any(keeps_something(_content(c), depth - 1) for c in cells)
    declared = getattr(value, "has_effects", None)
    if isinstance(declared, bool):
        return declared
    return not isinstance(value, _HARMLESS)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet: a function's own name
        return None
