"""Fields of a line to records, each checked: what a damaged line says may be of any type.

A record that comes out has the types that its annotations promise, and integers of 64 bits, so
that whoever works with it need not look again.  What does not fit raises one of ``UNREADABLE``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

from ..anomaly import AnomalyRecord
from ..bucket import BucketRecord, DeviceSpan, ErrorRecord, ParameterError, Scope, Stage, Transfer
from ..layout import BucketLayout, LayoutRecord
from ..run import ClockRecord, RunInfo
from ..skew import SkewRecord
from ..step import StepRecord

__all__ = [
    "UNREADABLE",
    "Fields",
    "decode_error",
    "read_anomaly",
    "read_bucket",
    "read_clock",
    "read_counts",
    "read_layout",
    "read_run",
    "read_skew",
    "read_step",
]

Fields = dict[str, Any]
"""A record's fields as they stand in the file; what is ``None`` or false is missing."""

UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError),
    *(OverflowError, RecursionError),
)
"""What reading a damaged line may raise."""

_INT64 = 1 << 63

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "Ns": (int,),
    "Count": (int,),
    "bool": (bool,),
    "str | None": (str, NoneType),
    "Ns | None": (int, NoneType),
    "Count | None": (int, NoneType),
    "Clock": (str,),
}


def _types_of(cls: type) -> dict[str, tuple[type, ...]]:
    """Return the types of the fields that need no reading of their own, by name."""
    annotated = {n: t for c in cls.__mro__ for n, t in getattr(c, "__annotations__", {}).items()}
    return {n: _TYPES[t] for n, t in annotated.items() if t in _TYPES}


def _check(args: Mapping[str, Any], types: Mapping[str, tuple[type, ...]]) -> None:
    for name, value in args.items():
        allowed = types.get(name)
        if allowed is not None and type(value) not in allowed:
            raise TypeError(f"the field {name!r} is {value!r}")
        if type(value) is int and not -_INT64 <= value < _INT64:
            raise OverflowError(f"the field {name!r} is larger than 64 bits")


_intern: Callable[[str], str] = sys.intern  # a few names stand in millions of records


def _int(value: Any) -> int:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise TypeError(f"{value!r} is no integer of 64 bits")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


_RUN = _types_of(RunInfo)
_FARTHEST_NS = 1 << 61
"""Of a host clock from its start, 73 years; twice that of a wall clock.  So the difference of two
ranks' clocks fits into 64 bits."""


def read_run(args: Fields) -> RunInfo:
    """Return the run of a run line whose schema is known."""
    args.pop("ts_epoch_ns", None)
    _check(args, _RUN)
    run = RunInfo(**args)
    if not (abs(run.host_anchor_ns) < _FARTHEST_NS and 0 <= run.wall_anchor_ns < 2 * _FARTHEST_NS):
        raise ValueError("the anchors of the clocks are not times")
    if run.rank < 0:
        raise ValueError("the rank is negative")
    return run


_UNKNOWN = [None, None, None, 0, None, None, None]
"""What a stage's array says by being shorter."""


def _read_stages(rows: list[list[Any]], zero_ns: int) -> tuple[Stage, ...]:
    return tuple([_stage(row, zero_ns) for row in rows])


def _stage(row: list[Any], zero_ns: int) -> Stage:
    name, start_ns, end_ns, derived, collective, wire_bytes, dtype = row + _UNKNOWN[len(row) :]
    return Stage(
        name=_intern(name),
        start_ns=_int(zero_ns + start_ns),
        end_ns=_int(zero_ns + end_ns),
        derived=derived == 1,
        collective=None if collective is None else _text(collective),
        wire_bytes=None if wire_bytes is None else _int(wire_bytes),
        dtype=None if dtype is None else _text(dtype),
    )


_BUCKET = _types_of(BucketRecord)


def read_bucket(args: Fields) -> BucketRecord:
    """Return a bucket."""
    args.setdefault("is_last", False)
    _check(args, _BUCKET)
    for name in ("model", "hook", "dtype", "device_type"):
        args[name] = _intern(args[name])
    args["stages"] = _read_stages(args["stages"], args["ready_ns"])
    if "device" in args:
        ready_ns, done_ns, rows = args["device"]
        stages = _read_stages(rows, _int(ready_ns))
        args["device"] = DeviceSpan(ready_ns=ready_ns, done_ns=_int(done_ns), stages=stages)
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


def _parameter_error(
    name: str, relative_l2: float | None, cosine: float | None, max_absolute: float | None
) -> ParameterError:
    return ParameterError(
        name=_text(name), relative_l2=relative_l2, cosine=cosine, max_absolute=max_absolute
    )


def _sent(rows: list[list[Any]]) -> tuple[Transfer, ...]:
    return tuple(
        Transfer(collective=_text(collective), dtype=_text(dtype), wire_bytes=_int(wire_bytes))
        for collective, dtype, wire_bytes in rows
    )


_STEP = _types_of(StepRecord)
_STEP_OPTIONAL = ("busy_ns", "exposed_ns", "wire_busy_ns", "period_ns", "wire_bytes", "bus_bytes")


def read_step(args: Fields) -> StepRecord:
    """Return a step."""
    for name in _STEP_OPTIONAL:
        args.setdefault(name)
    _check(args, _STEP)
    if args["clock"] not in {"host", "device"}:
        raise ValueError(f"the clock {args['clock']!r} is unknown")
    args["bus_bytes"] = _float(args["bus_bytes"])
    if "sent" in args:
        args["sent"] = _sent(args["sent"])
    return StepRecord(**args)


_ENTRY = _types_of(BucketLayout)
_LAYOUT = _types_of(LayoutRecord)


def read_layout(args: Fields) -> LayoutRecord:
    """Return a layout."""
    _check(args, _LAYOUT)
    args["buckets"] = tuple(_entry(b) for b in args["buckets"])
    return LayoutRecord(**args)


def _entry(args: Fields) -> BucketLayout:
    _check(args, _ENTRY)
    parameters = tuple(
        (_text(name), tuple(_int(length) for length in shape)) for name, shape in args["parameters"]
    )
    return BucketLayout(**{**args, "parameters": parameters})


_ANOMALY = _types_of(AnomalyRecord)


def read_anomaly(args: Fields) -> AnomalyRecord:
    """Return an anomaly."""
    _check(args, _ANOMALY)
    return AnomalyRecord(**args)


_CLOCK = _types_of(ClockRecord)


def read_clock(args: Fields) -> ClockRecord:
    """Return a measurement of the clock."""
    _check(args, _CLOCK)
    return ClockRecord(**args)


_SKEW = _types_of(SkewRecord)


def read_skew(args: Fields) -> SkewRecord:
    """Return when the ranks had a bucket ready."""
    _check(args, _SKEW)
    for name in ("ranks", "arrivals_ns"):
        args[name] = tuple(_int(value) for value in args[name])
    skew = SkewRecord(**args)
    if skew.rank not in skew.ranks or len(skew.ranks) != len(skew.arrivals_ns):
        raise ValueError("its ranks and arrivals do not belong together")
    return skew


def read_counts(args: Fields) -> dict[str, int]:
    """Return counts by kind."""
    return {_text(kind): _int(count) for kind, count in args.items()}
