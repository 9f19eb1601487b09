"""A strict validator of the trace-event format, as far as an export uses it."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_COMMON = {"ph": str, "pid": int, "name": str}
_FIELDS: dict[str, dict[str, Any]] = {
    "M": {"tid": int, "args": dict},
    "X": {"tid": int, "ts": float, "dur": float, "cat": str},
    "i": {"tid": int, "ts": float, "cat": str, "s": str},
}
_META = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


def _reject(word: str) -> None:
    raise AssertionError(f"not strict JSON: {word}")


def read(path: Path) -> dict[str, Any]:
    """Return an export's content; NaN and Infinity are no JSON."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("ascii")
    content: dict[str, Any] = json.loads(text, parse_constant=_reject)
    return content


def ns(us: float) -> int:
    return round(us * 1000)


def validate(content: dict[str, Any]) -> list[Event]:
    """Check a trace as a whole and return its events."""
    events: list[Event] = content["traceEvents"]
    for event in events:
        _validate_event(event)
    rows: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append(event)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert set(rows) <= named, "a row without a name"
    for row in rows.values():
        _validate_nesting(row)
    return events


def _validate_event(event: Event) -> None:
    wanted = _COMMON | _FIELDS[event["ph"]]
    for name, kind in wanted.items():
        assert type(event[name]) is kind, (name, event)
    assert set(event) <= {*wanted, "args"}, event
    assert event.get("ts", 0) >= 0, event
    assert event.get("dur", 0) >= 0, event
    if event["ph"] == "M":
        assert event["name"] in _META, event


def _validate_nesting(row: list[Event]) -> None:
    """A slice lies within the one that is open, or begins after it; parents come first."""
    open_until: list[int] = []
    previous = -1
    for event in row:
        start = ns(event["ts"])
        end = start + ns(event["dur"])
        assert start >= previous, ("not in order", event)
        previous = start
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], ("overlaps", event)
        open_until.append(end)
