"""What is known: one declaration a record, and the arithmetic, tables and files of records.

    stamps of capture --tracing--> records --> exporters, files, analysis

    bucket, step, layout, skew, anomaly, run    the kinds of records, each declared once
    intervals    exposed, busy, queue, bandwidth: the one place where these words get their meaning
    metrics      the one table of metrics
    summary      percentiles of kept records
    units        numbers as people read them: ms, MB, percent
    errors       what hooktrace raises
    anomalies    the one table of what can be wrong with a hook

    codec, lines          records to lines of a record file and back; what only files have
    reader, damage        files to records, whatever is in them; what is said of what cannot be read
    content, files        what was read; the files' names

What enters are integers and names; what leaves are frozen values with integer nanoseconds and
bytes.  Nothing here imports torch.
"""

from __future__ import annotations

from .anomaly import AnomalyRecord
from .bucket import (
    STAGES,
    BucketRecord,
    Clock,
    DeviceSpan,
    ErrorRecord,
    ParameterError,
    Scope,
    Stage,
    StageName,
    Transfer,
)
from .layout import BucketLayout, LayoutRecord
from .run import CLOCK_DRIFT, SCHEMA_VERSION, ClockRecord, RunInfo
from .skew import SkewRecord, late_rank
from .step import Batch, CompletedStep, StepRecord

__all__ = [
    "CLOCK_DRIFT",
    "SCHEMA_VERSION",
    "STAGES",
    "AnomalyRecord",
    "Batch",
    "BucketLayout",
    "BucketRecord",
    "Clock",
    "ClockRecord",
    "CompletedStep",
    "DeviceSpan",
    "ErrorRecord",
    "LayoutRecord",
    "ParameterError",
    "RunInfo",
    "Scope",
    "SkewRecord",
    "Stage",
    "StageName",
    "StepRecord",
    "Transfer",
    "late_rank",
]
