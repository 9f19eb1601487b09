"""hooktrace: instrumentation and debugging for PyTorch DDP communication hooks."""

from __future__ import annotations

from . import hooks
from .collectives import AllGather, AllReduce, AllToAll, Broadcast, Operation, ReduceScatter
from .errors import HookError
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
from .staged import StagedHook, staged
from .tracer import Tracer, default_tracer
from .wrapper import TracedHook, instrument, trace

__version__ = "0.1.0"

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
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
