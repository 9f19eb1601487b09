"""Records to lines of a trace file; the package's docstring defines the format."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from types import MappingProxyType
from typing import Any

from msgspec.structs import asdict

from ..anomaly import AnomalyRecord
from ..bucket import BucketRecord, ErrorRecord, Stage, Transfer
from ..layout import LayoutRecord
from ..run import ClockRecord, RunInfo
from ..skew import SkewRecord
from ..step import StepRecord

__all__ = ["TraceEncoder"]

SCHEMA_VERSION = 1
_DAY_NS = 86_400 * 10**9
_WEEK_NS = 7 * _DAY_NS
_TIDS_PER_MODEL = 10_000
_TIDS_PER_OVERLAP = 1_000_000
_MAX_ROWS = 8
"""Rows that one bucket index or the steps may spread over when their slices overlap."""


Counts = Mapping[str, int]
_NONE: Counts = MappingProxyType({})


def _us(ns: int) -> str:
    """Return ns as decimal µs, exactly."""
    if ns < 1000:
        return f"0.{ns:03d}" if ns >= 0 else f"-{_us(-ns)}"
    digits = str(ns)
    return f"{digits[:-3]}.{digits[-3:]}"


def _quote(text: str) -> str:
    """Return ``text`` as a JSON string in ASCII that may also stand inside an HTML page."""
    return encode_basestring_ascii(text).replace("<", "\\u003c")


_name = lru_cache(maxsize=1024)(_quote)
"""``_quote`` for the few strings that come again and again: models, hooks, dtypes."""


def _number(value: float) -> str:
    """Return a float so that ``float`` gives it back; JSON has no word for inf and nan."""
    return repr(value) if math.isfinite(value) else f'"{value}"'


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the decoder fills in by itself."""
    return {k: v for k, v in values.items() if v is not None and v is not False}


def _counts(lost: Counts, left_out: Counts, removed: Counts) -> dict[str, Any]:
    counts = {"lost": dict(lost)}
    counts |= {"left_out": dict(left_out)} if left_out else {}
    return counts | ({"removed": dict(removed)} if removed else {})


class TraceEncoder:
    """Turns the records of one run into lines of a trace file; remembers rows, holds no records.

    Each method returns whole lines, each ending in ``,`` and a newline except for ``end``'s.
    """

    def __init__(self, run: RunInfo) -> None:
        self._run = run
        self._pid = run.rank
        # A day before the anchor: Perfetto drops negative times.
        self._epoch_ns = (run.wall_anchor_ns - _DAY_NS) // _WEEK_NS * _WEEK_NS
        self._shift_ns = run.wall_anchor_ns - run.host_anchor_ns - self._epoch_ns
        self._models: dict[str, int] = {}
        self._ends_ns: dict[tuple[str, int, int], int] = {}

    def start(self) -> str:
        """Return the file's beginning: the bracket, the run, the process's name."""
        run = {"schema": SCHEMA_VERSION, "ts_epoch_ns": self._epoch_ns, **asdict(self._run)}
        name = f"rank {self._run.rank} ({self._run.host})"
        return (
            "[\n"
            + self._meta("hooktrace_run", run)
            + self._meta("process_name", {"name": name})
            + self._meta("process_sort_index", {"sort_index": self._run.rank})
        )

    def end(self, lost: Counts, left_out: Counts = _NONE, removed: Counts = _NONE) -> str:
        """Return the file's last lines, which count what is not in it, by kind (``Trace``)."""
        lines = self._meta("hooktrace_end", _counts(lost, left_out, removed))
        return lines.removesuffix(",\n") + "\n]\n"

    def so_far(self, lost: Counts, left_out: Counts, removed: Counts) -> str:
        """Return the line of the same counts for the beginning of a part that is not the first."""
        return self._meta("hooktrace_so_far", _counts(lost, left_out, removed))

    def layout(self, record: LayoutRecord) -> str:
        """Return the line of a layout: an instant on the row of the steps."""
        lines, tid = self._row_of_steps(record.model)
        args = {**asdict(record), "buckets": [asdict(bucket) for bucket in record.buckets]}
        return (
            f'{lines}{{"cat":"hooktrace.layout","ph":"i","s":"t",'
            f'"name":"bucket layout, generation {record.generation}",'
            f'"pid":{self._pid},"tid":{tid},"ts":{_us(record.time_ns + self._shift_ns)},'
            f'"args":{_json(args)}}},\n'
        )

    def anomaly(self, record: AnomalyRecord) -> str:
        """Return the line of an anomaly: an instant across the process's rows."""
        return (
            f'{{"cat":"hooktrace.anomaly","ph":"i","s":"p","name":{_quote(record.kind)},'
            f'"pid":{self._pid},"tid":0,"ts":{_us(record.time_ns + self._shift_ns)},'
            f'"args":{_json(asdict(record))}}},\n'
        )

    def clock(self, record: ClockRecord) -> str:
        """Return the line of a measurement of the clock."""
        return self._meta("hooktrace_clock", asdict(record))

    def skew(self, record: SkewRecord) -> str:
        """Return the line of when the ranks had a bucket ready: an instant on the steps' row."""
        lines, tid = self._row_of_steps(record.model)
        name = f"bucket {record.bucket}: ready {record.lag_ns / 1e6:.3f} ms after the first rank"
        return (
            f'{lines}{{"cat":"hooktrace.skew","ph":"i","s":"t","name":{_quote(name)},'
            f'"pid":{self._pid},"tid":{tid},"ts":{_us(record.time_ns + self._shift_ns)},'
            f'"args":{_json(asdict(record))}}},\n'
        )

    def buckets(self, step: StepRecord, records: Iterable[BucketRecord]) -> str:
        """Return the lines of a step's buckets, each followed by its stages."""
        return "".join([self._bucket(step, record) for record in records])

    def step(self, record: StepRecord, buckets: Sequence[BucketRecord]) -> str:
        """Return the lines of a step; ``buckets`` are those that were written before it."""
        start_ns, end_ns = record.first_ready_ns, _shown_end_ns(record, buckets)
        rows, tid = self._row(record.model, 0, start_ns, end_ns)
        where = f'"pid":{self._pid},"tid":{tid},"ts":'
        start = _us(start_ns + self._shift_ns)
        lines = [
            f'{rows}{{"cat":"hooktrace.step","ph":"X","name":"step {record.step}",{where}{start},'
            f'"dur":{_us(end_ns - start_ns)},"args":{_step_args(record)}}},\n'
        ]
        if record.exposed_ns:
            exposed_ns = min(record.exposed_ns, end_ns - start_ns)
            lines.append(
                f'{{"cat":"view.exposed","ph":"X","name":"exposed",{where}'
                f'{_us(end_ns - exposed_ns + self._shift_ns)},"dur":{_us(exposed_ns)}}},\n'
            )
        if record.detail_kept and start_ns <= record.last_ready_ns <= end_ns:
            lines.append(
                f'{{"cat":"view.mark","ph":"i","s":"t","name":"last bucket ready",{where}'
                f"{_us(record.last_ready_ns + self._shift_ns)}}},\n"
            )
        lines.extend(self._counters(record, start))
        return "".join(lines)

    def _counters(self, record: StepRecord, start: str) -> Iterator[str]:
        busbw = record.busbw_bytes_per_second
        for name, unit, value in (
            ("exposed", "ms", None if record.exposed_ns is None else record.exposed_ns / 1e6),
            ("busbw", "GB/s", None if busbw is None else busbw / 1e9),
        ):
            if value is not None and math.isfinite(value):
                yield (
                    f'{{"cat":"view.counter","ph":"C","name":{_name(f"{record.model} {name}")},'
                    f'"pid":{self._pid},"ts":{start},"args":{{"{unit}":{value:.6g}}}}},\n'
                )

    def _bucket(self, step: StepRecord, record: BucketRecord) -> str:
        device = record.device
        if device is None:
            shift_ns, start_ns, end_ns = 0, record.ready_ns, record.done_ns
        else:
            shift_ns = step.first_ready_ns
            start_ns, end_ns = shift_ns + device.ready_ns, shift_ns + device.done_ns
        end_ns = max(start_ns, end_ns)
        rows, tid = self._row(record.model, 1 + record.bucket, start_ns, end_ns)
        where = f'"pid":{self._pid},"tid":{tid},"ts":'
        lines = [
            f'{rows}{{"cat":"hooktrace.bucket","ph":"X","name":"bucket {record.bucket}",{where}'
            f'{_us(start_ns + self._shift_ns)},"dur":{_us(end_ns - start_ns)},'
            f'"args":{_bucket_args(record)}}},\n'
        ]
        cursor_ns = start_ns
        for stage in record.stages if device is None else device.stages:
            # Cut to the bucket and to what the stages before left: only nested slices are shown.
            from_ns = max(cursor_ns, stage.start_ns + shift_ns)
            to_ns = min(end_ns, stage.end_ns + shift_ns)
            if to_ns > from_ns:
                cat = "view.derived" if stage.derived else "view.stage"
                lines.append(
                    f'{{"cat":"{cat}","ph":"X","name":{_name(stage.name)},{where}'
                    f'{_us(from_ns + self._shift_ns)},"dur":{_us(to_ns - from_ns)}}},\n'
                )
                cursor_ns = to_ns
        if record.error is not None and record.error.relative_l2 is not None:
            name = f"error {record.error.relative_l2:.3g}"
            lines.append(
                f'{{"cat":"view.mark","ph":"i","s":"t","name":{_quote(name)},{where}'
                f"{_us(end_ns + self._shift_ns)}}},\n"
            )
        return "".join(lines)

    def _row(self, model: str, row: int, start_ns: int, end_ns: int) -> tuple[str, int]:
        """Return the lines that name new rows, if there are any, and the tid of the row.

        ``row`` is 0 for the steps and 1 + index for a bucket.
        """
        for extra in range(_MAX_ROWS):
            end = self._ends_ns.get((model, row, extra))
            if end is None:
                lines = self._name_row(model, row, extra)
            elif end <= start_ns or extra == _MAX_ROWS - 1:
                lines = ""
            else:
                continue
            self._ends_ns[model, row, extra] = end_ns if end is None else max(end, end_ns)
            return lines, self._tid(model, row, extra)
        raise AssertionError("the last row takes what is left")

    def _row_of_steps(self, model: str) -> tuple[str, int]:
        """Do what ``_row`` does for an instant, which takes no room on the row."""
        lines = "" if (model, 0, 0) in self._ends_ns else self._name_row(model, 0, 0)
        self._ends_ns.setdefault((model, 0, 0), -(2**63))
        return lines, self._tid(model, 0, 0)

    def _tid(self, model: str, row: int, extra: int) -> int:
        # Perfetto shows threads in the order of their tids.  They start above the pid: a thread
        # whose tid is its pid counts as the process's main thread.
        index = self._models.setdefault(model, len(self._models))
        return self._pid + 1 + index * _TIDS_PER_MODEL + row + extra * _TIDS_PER_OVERLAP

    def _name_row(self, model: str, row: int, extra: int) -> str:
        title = f"{model}: steps" if row == 0 else f"{model}: bucket {row - 1}"
        title += f" (overlap {extra})" if extra else ""
        tid = self._tid(model, row, extra)
        return self._meta("thread_name", {"name": title}, tid) + self._meta(
            "thread_sort_index", {"sort_index": tid}, tid
        )

    def _meta(self, name: str, args: dict[str, Any], tid: int = 0) -> str:
        return f'{{"ph":"M","name":"{name}","pid":{self._pid},"tid":{tid},"args":{_json(args)}}},\n'


def _shown_end_ns(step: StepRecord, buckets: Sequence[BucketRecord]) -> int:
    ends = [b.device.done_ns for b in buckets if b.device is not None]
    end_ns = step.first_ready_ns + max(ends) if ends else step.done_ns
    return max(step.first_ready_ns, end_ns)


def _stages(stages: tuple[Stage, ...], zero_ns: int) -> str:
    """Return stages as arrays, times relative to ``zero_ns``, unknown ends left out."""
    parts = []
    for s in stages:
        core = f"[{_name(s.name)},{s.start_ns - zero_ns},{s.end_ns - zero_ns}"
        if s.collective is not None or s.wire_bytes is not None or s.dtype is not None:
            collective = "null" if s.collective is None else _name(s.collective)
            wire_bytes = "null" if s.wire_bytes is None else s.wire_bytes
            dtype = "null" if s.dtype is None else _name(s.dtype)
            parts.append(f"{core},{s.derived:d},{collective},{wire_bytes},{dtype}]")
        else:
            parts.append(f"{core},1]" if s.derived else f"{core}]")
    return f"[{','.join(parts)}]"


def _error(e: ErrorRecord) -> str:
    """Return an error as an array: its numbers, ``worst`` as arrays, a scope that is not global."""
    numbers = (
        *(e.relative_l2, e.cosine, e.max_absolute, e.flipped_share),
        *(e.reference_l2, e.residual_l2),
    )
    worst = [
        f"[{_quote(w.name)},{_numbers((w.relative_l2, w.cosine, w.max_absolute))}]" for w in e.worst
    ]
    scope = "" if e.scope == "global" else f",{_name(e.scope)}"
    return f"[{_numbers(numbers)},[{','.join(worst)}]{scope}]"


def _sent(transfers: tuple[Transfer, ...]) -> str:
    return _json([(t.collective, t.dtype, t.wire_bytes) for t in transfers])


def _numbers(values: Iterable[float | None]) -> str:
    return ",".join("null" if value is None else _number(value) for value in values)


def _bucket_args(r: BucketRecord) -> str:
    args = (
        f'{{"model":{_name(r.model)},"hook":{_name(r.hook)},"generation":{r.generation},'
        f'"step":{r.step},"bucket":{r.bucket},"dtype":{_name(r.dtype)},'
        f'"device_type":{_name(r.device_type)},"numel":{r.numel},'
        f'"gradient_bytes":{r.gradient_bytes},"parameter_count":{r.parameter_count},'
        f'"ready_ns":{r.ready_ns},"launched_ns":{r.launched_ns},"done_ns":{r.done_ns},'
        f'"stages":{_stages(r.stages, r.ready_ns)}'
    )
    if r.wire_bytes is not None:
        args += f',"wire_bytes":{r.wire_bytes}'
    if r.bus_bytes is not None:
        args += f',"bus_bytes":{_number(r.bus_bytes)}'
    if r.device is not None:
        d = r.device
        args += f',"device":[{d.ready_ns},{d.done_ns},{_stages(d.stages, d.ready_ns)}]'
    for name in ("is_last", "shadow", "warmup"):
        if getattr(r, name):
            args += f',"{name}":true'
    if r.exception is not None:
        args += f',"exception":{_quote(r.exception)}'
    if r.error is not None:
        args += f',"error":{_error(r.error)}'
    if r.sent is not None:
        args += f',"sent":{_sent(r.sent)}'
    return args + "}"


def _step_args(r: StepRecord) -> str:
    values = _given({name: getattr(r, name) for name in _STEP_FIELDS})
    for name in _TRUE_UNLESS_SAID:
        if values.pop(name, False) is False:
            values[name] = False
    if r.bus_bytes is not None:
        values["bus_bytes"] = r.bus_bytes if math.isfinite(r.bus_bytes) else str(r.bus_bytes)
    if r.sent is not None:
        values["sent"] = [(t.collective, t.dtype, t.wire_bytes) for t in r.sent]
    return _json(values)


_STEP_FIELDS = tuple(StepRecord.__struct_fields__)
_TRUE_UNLESS_SAID = ("complete", "detail_kept")
