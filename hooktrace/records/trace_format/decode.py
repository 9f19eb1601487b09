"""Lines of trace files to records; the package's docstring defines the format.

    file --read_lines--> lines --decode_trace--> one event each --fields.py--> records in a Trace
                                                   |
                                                   +-- cannot be read: named by its number, skipped
    parts of a run --read_parts--> one Trace

Nothing in a file makes reading it fail, and a line that is damaged takes no other with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..run import RunInfo
from .fields import (
    UNREADABLE,
    Fields,
    read_anomaly,
    read_bucket,
    read_clock,
    read_counts,
    read_layout,
    read_run,
    read_skew,
    read_step,
)
from .trace import SkippedLine, Trace

__all__ = ["TraceDecoder", "decode_trace", "read_lines", "read_parts", "read_trace"]

SCHEMA_VERSION = 1
_LONGEST_LINE = 64 << 20
"""Bytes.  A line of another tool may be gigabytes, which must not get into memory."""
_LONGEST_REASON = 300
_HEAD = 200
"""Bytes by which a file of another tool is known."""

_BEGINNINGS = (b'{"ph":"M","name":"hooktrace_', b'{"cat":"hooktrace.', b'{"cat":"view.')
"""By which a line that cannot be read is still known as ours."""

Take = Callable[[Fields], None]


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read one trace file: the whole of a run that has one part.

    Lines that cannot be read are skipped and named in ``skipped``; only a file that cannot be
    opened or read raises (``OSError``).
    """
    return decode_trace(read_lines(path))


def read_parts(paths: Sequence[str | os.PathLike[str]]) -> Trace:
    """Read the parts of one rank's run, oldest first, as ``find_traces`` gives them.

    As ``read_trace``; what was skipped in which part is said where there are several.
    """
    whole = Trace()
    for path in paths:
        part = decode_trace(read_lines(path), run=whole.run)
        whole.join(part, os.path.basename(path) if len(paths) > 1 else None)
    return whole


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield a file's lines; of one that is longer than any of hooktrace's only the beginning.

    Raises ``OSError`` for a file that cannot be opened or read.
    """
    with open(path, "rb") as file:
        while line := file.readline(_LONGEST_LINE):
            yield line
            while len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                line = file.readline(_LONGEST_LINE)


def decode_trace(
    lines: Iterable[bytes],
    *,
    run: RunInfo | None = None,
    bucket: Take | None = None,
    step: Take | None = None,
) -> Trace:
    """Do what ``read_trace`` does, for lines from anywhere.

    ``run``: of the parts before this one; a part of another run is not read.  ``bucket``, ``step``:
    take the fields of each, in place of the trace's lists, by a reader that has no use for a
    million records.  What they raise skips the line.
    """
    decoder = TraceDecoder(run=run, bucket=bucket, step=step)
    decoder.feed(lines)
    return decoder.content()


class TraceDecoder:
    """Does what ``decode_trace`` does for lines that come in portions: a file that still grows."""

    def __init__(
        self, *, run: RunInfo | None = None, bucket: Take | None = None, step: Take | None = None
    ) -> None:
        self._trace = trace = Trace(run=run)
        self._take = _Takers(
            bucket or (lambda fields: trace.buckets.append(read_bucket(fields))),
            step or (lambda fields: trace.steps.append(read_step(fields))),
        )
        self._number = 0
        self._stopped = False
        self._is_ours = run is not None
        self._head = b""

    def feed(self, lines: Iterable[bytes]) -> None:
        """Read the next lines; of a growing file whole ones only."""
        if self._stopped:
            return
        trace = self._trace
        for number, raw in enumerate(lines, self._number + 1):
            self._number = number
            if raw.startswith(b'{"cat":"view.') and raw.endswith(b"},\n"):
                self._is_ours = True  # three lines of four: nothing else is done for them
                continue
            line = raw.strip()
            if line in {b"", b"[", b"]"}:
                trace.closed = line == b"]" or (trace.closed and not line)
                continue
            trace.closed = False
            if len(self._head) <= _HEAD:
                self._head += line[:_HEAD]
            try:
                if len(raw) >= _LONGEST_LINE:
                    raise ValueError("the line is longer than any that hooktrace writes")
                if raw.startswith(_BUCKET) and (fields := _args(raw)) is not None:
                    self._is_ours = True
                    self._take.bucket(fields)
                    continue
                event = json.loads(line.removesuffix(b","))
                self._is_ours |= _read_event(trace, self._take, event)
            except _StopReadingError as error:
                trace.skip(number, f"{error}; nothing from here on was read")
                self._stopped = self._is_ours = True
                return
            except UNREADABLE as error:
                trace.skip(number, _reason(raw, error))
                self._is_ours |= _is_like_ours(raw, line)

    def content(self) -> Trace:
        """Return what was read so far; of a file of another tool one sentence says so."""
        if not self._trace.skipped or self._is_ours:
            return self._trace
        return replace(self._trace, skipped=[SkippedLine(1, _foreign(self._head))], unnamed=0)


def _is_like_ours(raw: bytes, line: bytes) -> bool:
    """Return whether a line that cannot be read, or the cut-off end of a file, was one of ours."""
    is_cut = not raw.endswith(b"\n")
    return any(line.startswith(b) or (is_cut and b.startswith(line)) for b in _BEGINNINGS)


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


class _StopReadingError(Exception):
    """From this line on nothing may be read as records of this run and schema."""


def _reason(raw: bytes, error: Exception) -> str:
    if not raw.endswith(b"\n") and len(raw) < _LONGEST_LINE:
        return "the line is cut off: the file ends in the middle of it"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        reason = f"not JSON: {error}"
    elif isinstance(error, KeyError):
        reason = f"the field {error} is missing"
    else:
        reason = str(error) or type(error).__name__
    return reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."


def _foreign(head: bytes) -> str:
    """Return the sentence about a file in which no line is ours; ``head`` is its beginning."""
    what = "no line of it is an event of hooktrace"
    remedy = "pass a rank<NNNNN>.trace.json that TraceFileExporter wrote"
    if head.startswith(b"\x1f\x8b"):
        what, remedy = "it is compressed by gzip", "unpack it, if one is inside"
    elif b'"traceEvents"' in head or b'"ph"' in head:
        what = "its events are those of another tool"
    return f"the file is no trace of hooktrace: {what}; {remedy}"


class _Takers(NamedTuple):
    bucket: Take
    step: Take


def _read_event(trace: Trace, take: _Takers, event: dict[str, Any]) -> bool:
    """Read an event into ``trace``; returns whether only hooktrace can have written it."""
    if event.get("ph") == "M":
        return _read_meta(trace, event["name"], event)
    category = event.get("cat")
    if category == "hooktrace.bucket":
        take.bucket(event["args"])
    elif category == "hooktrace.step":
        take.step(event["args"])
    elif category == "hooktrace.layout":
        trace.layouts.append(read_layout(event["args"]))
    elif category == "hooktrace.anomaly":
        trace.anomalies.append(read_anomaly(event["args"]))
    elif category == "hooktrace.skew":
        trace.skews.append(read_skew(event["args"]))
    elif not str(category).startswith("view."):
        raise ValueError(f"not an event of hooktrace: category {category!r}")
    return True


def _read_meta(trace: Trace, name: str, event: dict[str, Any]) -> bool:
    if name in {"hooktrace_end", "hooktrace_so_far"}:
        args = event["args"]
        counts = [read_counts(args.get(kind, {})) for kind in ("lost", "left_out", "removed")]
        trace.lost, trace.left_out, trace.removed = counts
    elif name == "hooktrace_clock":
        trace.clocks.append(read_clock(event["args"]))
    elif name == "hooktrace_run":
        _read_run(trace, event["args"])
    else:
        return False
    return True


def _read_run(trace: Trace, args: Fields) -> None:
    schema = args.pop("schema")
    if schema != SCHEMA_VERSION:
        raise _StopReadingError(
            f"the file has schema version {str(schema)[:20]} and this hooktrace reads "
            f"{SCHEMA_VERSION}; use the version of hooktrace that wrote it"
        )
    run = read_run(args)
    if trace.run is not None and trace.run != run:
        raise _StopReadingError("a second run begins here; keep each rank's file on its own")
    trace.run = run
