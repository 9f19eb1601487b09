"""The trace file's format, both ways: records to lines, lines to records.

A trace file is Chrome trace-event JSON in array form, one event a line, so that Perfetto and
``chrome://tracing`` open it as it is and a file that a killed process left can be read::

    [
    {"ph":"M","name":"hooktrace_run", ... "args":{"schema":1, ... the RunInfo}},
    {"cat":"hooktrace.bucket","ph":"X","name":"bucket 0", ... "args":{the BucketRecord}},
    {"cat":"view.stage","ph":"X","name":"compress", ...},
    {"cat":"hooktrace.step","ph":"X","name":"step 7", ... "args":{the StepRecord}},
    {"ph":"M","name":"hooktrace_clock", ... "args":{the ClockRecord}},
    ...
    {"ph":"M","name":"hooktrace_end", ... "args":{"lost":{}}}
    ]

- Events whose category starts with ``hooktrace.`` hold a whole record in ``args``, fields that are
  ``None`` or false left out.  A step comes after its buckets, so where the step is they are too.
  One with ``"detail_kept":false`` was written without them on purpose; where the step after it
  turned out slow, they follow.
- A run may have several files (``files``): each part begins as the first one does, then repeats the
  last clock and layouts and counts in ``hooktrace_so_far`` what is not there, by kind: ``lost``,
  ``left_out`` by the writer's retention, ``removed`` with older parts.  ``hooktrace_end`` has the
  same counts.
- Events of category ``view.*`` repeat parts of a record for the eye and are not read back.
- ``pid`` is the rank.  Each bucket index has a row of its own, its stages nested in it, and the
  steps have a row with the exposed time nested at the end.  Perfetto drops a slice that overlaps
  another one of its row without nesting; such a slice goes to a second row.
- ``ts`` and ``dur`` are microseconds with three decimals.  Perfetto and browsers hold them as
  doubles, which cannot tell nanoseconds apart in microseconds since 1970 (16 digits before the
  point), so ``ts`` counts from ``ts_epoch_ns`` of the run line: the start of a week, the same on
  all ranks of a job unless they start on two sides of it.  The exact times are in ``args``.
- A device bucket is drawn where its step's first bucket became ready on the host plus its device
  times, since no clock ties the two; ``args`` keeps both apart.

Only the standard library and the records are imported.  ``encode`` writes; ``decode`` reads lines,
``fields`` makes checked records of them, ``trace`` is what comes out; ``files`` knows the names.
"""

from __future__ import annotations

from .decode import (
    TraceDecoder,
    decode_trace,
    read_lines,
    read_parts,
    read_trace,
)
from .encode import TraceEncoder
from .fields import Fields, decode_error
from .files import TraceName, find_traces, part_path, trace_path
from .trace import SkippedLine, Trace

__all__ = [
    "Fields",
    "SkippedLine",
    "Trace",
    "TraceDecoder",
    "TraceEncoder",
    "TraceName",
    "decode_error",
    "decode_trace",
    "find_traces",
    "part_path",
    "read_lines",
    "read_parts",
    "read_trace",
    "trace_path",
]
