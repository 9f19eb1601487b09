"""Lines of a trace file to records; the package's docstring defines the format."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..records import (
    SCHEMA_VERSION,
    AnomalyRecord,
    BucketLayout,
    BucketRecord,
    ClockRecord,
    DeviceSpan,
    ErrorRecord,
    LayoutRecord,
    ParameterError,
    RunInfo,
    Scope,
    SkewRecord,
    Stage,
    StepRecord,
    Transfer,
)

__all__ = ["Fields", "SkippedLine", "Trace", "decode_error", "decode_trace", "read_trace"]


class SkippedLine(NamedTuple):
    """A line that was not read: its number, from 1, and why."""

    line: int
    reason: str


@dataclass(slots=True)
class Trace:
    """What a trace file holds, in the file's order.

    ``run`` is ``None`` when even the first line is gone.  ``closed`` says that the writer ended
    in order; a killed one leaves false.  ``lost`` counts, by kind, the records that the writer did
    not write because of its size limit.  A step is whole when as many of ``buckets`` have its
    model and step as its ``bucket_count`` says.
    """

    run: RunInfo | None = None
    steps: list[StepRecord] = field(default_factory=list)
    buckets: list[BucketRecord] = field(default_factory=list)
    layouts: list[LayoutRecord] = field(default_factory=list)
    anomalies: list[AnomalyRecord] = field(default_factory=list)
    clocks: list[ClockRecord] = field(default_factory=list)
    skews: list[SkewRecord] = field(default_factory=list)
    skipped: list[SkippedLine] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    closed: bool = False


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read the trace file of one rank.

    Lines that cannot be read are skipped and named in ``skipped``; only a file that cannot be
    opened raises (``OSError``).
    """
    with open(path, "rb") as lines:
        return decode_trace(lines)


Fields = dict[str, Any]
"""A record's fields as they stand in the file; what is ``None`` or false is missing."""


def decode_trace(
    lines: Iterable[bytes],
    *,
    bucket: Callable[[Fields], None] | None = None,
    step: Callable[[Fields], None] | None = None,
) -> Trace:
    """Do what ``read_trace`` does, for lines from anywhere.

    ``bucket``, ``step``: take the fields of each, in place of the trace's lists, by a reader that
    has no use for a million records.  What they raise skips the line.
    """
    trace = Trace()
    take = _Takers(
        bucket or (lambda fields: trace.buckets.append(_bucket(fields))),
        step or (lambda fields: trace.steps.append(_step(fields))),
    )
    for number, raw in enumerate(lines, 1):
        if raw.startswith(b'{"cat":"view.') and raw.endswith(b"},\n"):
            continue  # three lines of four: nothing else is done for them
        line = raw.strip()
        if line in {b"", b"[", b"]"}:
            trace.closed = line == b"]" or (trace.closed and not line)
            continue
        trace.closed = False
        try:
            if raw.startswith(_BUCKET) and (fields := _args(raw)) is not None:
                take.bucket(fields)
                continue
            _read_event(trace, take, json.loads(line.removesuffix(b",")))
        except _StopReadingError as error:
            trace.skipped.append(SkippedLine(number, f"{error}; nothing from here on was read"))
            break
        except _UNREADABLE as error:
            trace.skipped.append(SkippedLine(number, _reason(raw, error)))
    return trace


_BUCKET = b'{"cat":"hooktrace.bucket",'
_scan = json.JSONDecoder().raw_decode


def _args(raw: bytes) -> Fields | None:
    """Return a bucket's fields, without what stands before them for viewers: half of the work.

    ``None`` for a line of any other form, to be read as a whole.
    """
    try:
        text = raw.decode("ascii")
        fields: Fields
        fields, end = _scan(text, text.index('"args":{') + 7)
    except ValueError:
        return None
    return fields if text[end:] == "},\n" else None


_UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError),
    *(OverflowError, RecursionError),
)


class _StopReadingError(Exception):
    """From this line on nothing may be read as records of this run and schema."""


def _reason(raw: bytes, error: Exception) -> str:
    if not raw.endswith(b"\n"):
        return "the line is cut off: the file ends in the middle of it"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return f"not JSON: {error}"
    if isinstance(error, KeyError):
        return f"the field {error} is missing"
    return str(error) or type(error).__name__


class _Takers(NamedTuple):
    bucket: Callable[[Fields], None]
    step: Callable[[Fields], None]


def _read_event(trace: Trace, take: _Takers, event: dict[str, Any]) -> None:
    if event.get("ph") == "M":
        _read_meta(trace, event["name"], event["args"])
        return
    category = event.get("cat")
    if category == "hooktrace.bucket":
        take.bucket(event["args"])
    elif category == "hooktrace.step":
        take.step(event["args"])
    elif category == "hooktrace.layout":
        trace.layouts.append(_layout(event["args"]))
    elif category == "hooktrace.anomaly":
        trace.anomalies.append(AnomalyRecord(**event["args"]))
    elif category == "hooktrace.skew":
        arrivals_ns = tuple(event["args"].pop("arrivals_ns"))
        trace.skews.append(SkewRecord(**event["args"], arrivals_ns=arrivals_ns))
    elif category == "hooktrace.limit":
        trace.lost = event["args"]["lost"]
    elif not str(category).startswith("view."):
        raise ValueError(f"not an event of hooktrace: category {category!r}")


def _read_meta(trace: Trace, name: str, args: dict[str, Any]) -> None:
    if name == "hooktrace_end":
        trace.lost = args["lost"]
    elif name == "hooktrace_clock":
        trace.clocks.append(ClockRecord(**args))
    elif name == "hooktrace_run":
        schema = args.pop("schema")
        if schema != SCHEMA_VERSION:
            raise _StopReadingError(
                f"the file has schema version {schema!r} and this hooktrace reads "
                f"{SCHEMA_VERSION}; use the version of hooktrace that wrote it"
            )
        if trace.run is not None:
            raise _StopReadingError("a second run begins here; keep each rank's file on its own")
        del args["ts_epoch_ns"]
        trace.run = RunInfo(**args)


_intern: Callable[[str], str] = sys.intern  # a few names stand in millions of records


def _read_stages(rows: list[list[Any]], zero_ns: int) -> tuple[Stage, ...]:
    return tuple([_stage(row, zero_ns) for row in rows])


_UNKNOWN = [None, None, None, 0, None, None, None]
"""What a stage's array says by being shorter."""


def _stage(row: list[Any], zero_ns: int) -> Stage:
    name, start_ns, end_ns, derived, collective, wire_bytes, dtype = row + _UNKNOWN[len(row) :]
    return Stage(
        name=_intern(name),
        start_ns=zero_ns + start_ns,
        end_ns=zero_ns + end_ns,
        derived=derived == 1,
        collective=collective,
        wire_bytes=wire_bytes,
        dtype=dtype,
    )


def _bucket(args: dict[str, Any]) -> BucketRecord:
    args.setdefault("is_last", False)
    for name in ("model", "hook", "dtype", "device_type"):
        args[name] = _intern(args[name])
    args["stages"] = _read_stages(args["stages"], args["ready_ns"])
    if "device" in args:
        ready_ns, done_ns, rows = args["device"]
        stages = _read_stages(rows, ready_ns)
        args["device"] = DeviceSpan(ready_ns=ready_ns, done_ns=done_ns, stages=stages)
    if "bus_bytes" in args:
        args["bus_bytes"] = float(args["bus_bytes"])
    if "error" in args:
        args["error"] = decode_error(args["error"])
    if "sent" in args:
        args["sent"] = _sent(args["sent"])
    return BucketRecord(**args)


_NUMBERS = (
    *("relative_l2", "cosine", "max_absolute", "flipped_share"),
    *("reference_l2", "residual_l2"),
)


def decode_error(row: Sequence[Any]) -> ErrorRecord:
    """Return the error that a bucket's field of that name holds."""
    count = len(_NUMBERS)
    worst = row[count]
    scope: Scope = "local" if "local" in row[count + 1 :] else "global"
    return ErrorRecord(
        **dict(zip(_NUMBERS, map(_float, row[:count]), strict=True)),
        worst=tuple(_parameter_error(name, *map(_float, values)) for name, *values in worst),
        scope=scope,
    )


def _sent(rows: list[list[Any]]) -> tuple[Transfer, ...]:
    return tuple(
        Transfer(collective=collective, dtype=dtype, wire_bytes=wire_bytes)
        for collective, dtype, wire_bytes in rows
    )


def _parameter_error(
    name: str, relative_l2: float | None, cosine: float | None, max_absolute: float | None
) -> ParameterError:
    return ParameterError(
        name=name, relative_l2=relative_l2, cosine=cosine, max_absolute=max_absolute
    )


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


_STEP_OPTIONAL = ("busy_ns", "exposed_ns", "wire_busy_ns", "period_ns", "wire_bytes", "bus_bytes")


def _step(args: dict[str, Any]) -> StepRecord:
    for name in _STEP_OPTIONAL:
        args.setdefault(name)
    if args["bus_bytes"] is not None:
        args["bus_bytes"] = float(args["bus_bytes"])
    if "sent" in args:
        args["sent"] = _sent(args["sent"])
    return StepRecord(**args)


def _layout(args: dict[str, Any]) -> LayoutRecord:
    args["buckets"] = tuple(
        BucketLayout(
            **{**b, "parameters": tuple((name, tuple(shape)) for name, shape in b["parameters"])}
        )
        for b in args["buckets"]
    )
    return LayoutRecord(**args)
