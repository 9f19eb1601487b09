"""hooktrace: instrumentation and debugging for PyTorch DDP communication hooks.

The public names are imported when they are first used, so that ``hooktrace.records`` and whatever
else needs no torch can be imported without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import hooks
    from .collectives import AllGather, AllReduce, AllToAll, Broadcast, Operation, ReduceScatter
    from .driver import StagedHook, staged
    from .errors import AnomalyError, HookError
    from .groups import group_of
    from .job import shutdown
    from .records import (
        AnomalyRecord,
        BucketLayout,
        BucketRecord,
        DeviceSpan,
        LayoutRecord,
        RunInfo,
        Stage,
        StepRecord,
    )
    from .tracer import Tracer, default_tracer
    from .wrapper import TracedHook, instrument, trace

__version__ = "0.1.0"

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "AnomalyError",
    "AnomalyRecord",
    "Broadcast",
    "BucketLayout",
    "BucketRecord",
    "DeviceSpan",
    "HookError",
    "LayoutRecord",
    "Operation",
    "ReduceScatter",
    "RunInfo",
    "Stage",
    "StagedHook",
    "StepRecord",
    "TracedHook",
    "Tracer",
    "default_tracer",
    "group_of",
    "hooks",
    "instrument",
    "shutdown",
    "staged",
    "trace",
]

_HOMES = {
    "AllGather": "collectives",
    "AllReduce": "collectives",
    "AllToAll": "collectives",
    "AnomalyRecord": "records",
    "Broadcast": "collectives",
    "BucketLayout": "records",
    "BucketRecord": "records",
    "DeviceSpan": "records",
    "AnomalyError": "errors",
    "HookError": "errors",
    "LayoutRecord": "records",
    "Operation": "collectives",
    "ReduceScatter": "collectives",
    "RunInfo": "records",
    "Stage": "records",
    "StagedHook": "driver",
    "StepRecord": "records",
    "TracedHook": "wrapper",
    "Tracer": "tracer",
    "default_tracer": "tracer",
    "group_of": "groups",
    "instrument": "wrapper",
    "shutdown": "job",
    "staged": "driver",
    "trace": "wrapper",
}


def __getattr__(name: str) -> Any:
    if name == "hooks":
        return importlib.import_module(".hooks", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
