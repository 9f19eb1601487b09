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
    "B": {"tid": int, "ts": float, "cat": str, "args": dict},
    "C": {"ts": float, "cat": str, "args": dict},
    "i": {"tid": int, "ts": float, "cat": str, "s": str},
    "s": {"tid": int, "ts": float, "cat": str, "id": int},
    "t": {"tid": int, "ts": float, "cat": str, "id": int, "bp": str},
    "f": {"tid": int, "ts": float, "cat": str, "id": int, "bp": str},
}
_META = {"process_name", "process_sort_index", "process_labels", "thread_name", "thread_sort_index"}


_STAGES = {"stage", "derived"}


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
    open_rows = [(e["pid"], e["tid"]) for e in events if e["ph"] == "B"]
    assert len(set(open_rows)) == len(open_rows), "two that do not end in one row"
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {*rows, *open_rows} <= named, "a row without a name"
    for row in rows.values():
        _validate_nesting(row)
    _validate_flows([e for e in events if e["ph"] in "stf"], rows)
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
    if event["ph"] == "C":
        assert all(type(value) in {int, float} for value in event["args"].values()), event
    if "bp" in event:
        assert event["bp"] == "e"


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


def _validate_flows(flows: list[Event], rows: dict[tuple[int, int], list[Event]]) -> None:
    """Each flow starts once, ends once, goes forward in time, and each end is within a slice."""
    spans: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for key, row in rows.items():
        for e in row:
            start, end = ns(e["ts"]), ns(e["ts"] + e["dur"])
            if e["cat"] in ("bucket", "unit"):
                spans[key][start] = max(end, spans[key].get(start, end))
    within = {key: {ns(e["ts"]) for e in row if e["cat"] in _STAGES} for key, row in rows.items()}
    by_id: dict[int, list[tuple[int, int, Event]]] = defaultdict(list)
    for position, event in enumerate(flows):
        at = ns(event["ts"])
        assert spans[event["pid"], event["tid"]][at] > at, ("in no slice", event)
        assert at not in within[event["pid"], event["tid"]], ("bound to a stage", event)
        by_id[event["id"]].append((at, position, event))
    for flow, parts in by_id.items():
        phases = "".join(event["ph"] for _, _, event in sorted(parts, key=lambda part: part[:2]))
        assert len(parts) >= 2
        assert phases == "s" + "t" * (len(parts) - 2) + "f", (flow, phases)
        assert len({(e["name"], e["cat"]) for _, _, e in parts}) == 1
        assert len({e["pid"] for _, _, e in parts}) == len(parts), "an arrow within one rank"
