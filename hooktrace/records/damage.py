"""What is said of lines that cannot be read, and of files that are not hooktrace's."""

from __future__ import annotations

import msgspec

from .codec import UNREADABLE
from .run import SCHEMA_VERSION

LONGEST_LINE = 64 << 20
"""Bytes.  A line of another tool may be gigabytes, which must not get into memory."""


class _Schema(msgspec.Struct, tag_field="kind", tag="run"):
    """What the run line of any version says."""

    schema: int


def schema_of(raw: bytes) -> int | None:
    """Return the schema version that a run's line of any version says; ``None`` for other lines."""
    try:
        return msgspec.json.decode(raw, type=_Schema).schema
    except UNREADABLE:
        return None


def other_schema(schema: object) -> str:
    """Return the sentence about a file of another schema version."""
    return (
        f"the file has schema version {str(schema)[:20]} and this hooktrace reads "
        f"{SCHEMA_VERSION}; use the version of hooktrace that wrote it"
    )


HEAD_BYTES = 200
"""Bytes by which a file of another tool is known."""
_LONGEST_REASON = 300
_BEGINNINGS = tuple(
    f'{{"kind":"{kind}"'.encode()
    for kind in ("run", "layout", "bucket", "step", "clock", "skew", "anomaly", "losses")
)
"""By which a line that cannot be read is still known as ours."""


def is_like_ours(raw: bytes) -> bool:
    """Return whether a line that cannot be read, or the cut-off end of a file, was one of ours."""
    is_cut = not raw.endswith(b"\n")
    return any(raw.startswith(b) or (is_cut and b.startswith(raw)) for b in _BEGINNINGS)


def reason_of(raw: bytes, error: Exception) -> str:
    """Return why a line cannot be read."""
    if len(raw) >= LONGEST_LINE:
        return "the line is longer than any that hooktrace writes"
    if not raw.endswith(b"\n"):
        return "the line is cut off: the file ends in the middle of it"
    reason = str(error) or type(error).__name__
    if type(error) in UNREADABLE:
        reason = f"not JSON: {reason}"
    return reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."


def foreign(head: bytes) -> str:
    """Return the sentence about a file in which no line is ours; ``head`` is its beginning."""
    what = "no line of it is a record of hooktrace"
    remedy = "pass a rank<NNNNN>.jsonl that RecordFileExporter wrote"
    if b'"hooktrace_run"' in head:
        what = "it is a trace file of hooktrace before 0.1"
        remedy = "open it in Perfetto as it is, or record the run again"
    elif head.startswith(b"\x1f\x8b"):
        what, remedy = "it is compressed by gzip", "unpack it, if one is inside"
    elif b'"traceEvents"' in head or b'"ph"' in head:
        what = "its lines are events for Perfetto"
    return f"the file is no record file of hooktrace: {what}; {remedy}"
