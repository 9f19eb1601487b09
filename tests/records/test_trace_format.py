"""The trace format alone: every record comes back, every damage is named, every row nests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import hooktrace
from hooktrace.records import (
    AnomalyRecord,
    BucketLayout,
    BucketRecord,
    ClockRecord,
    DeviceSpan,
    ErrorRecord,
    LayoutRecord,
    ParameterError,
    RunInfo,
    SkewRecord,
    Stage,
    StepRecord,
    Transfer,
)
from hooktrace.records.trace_format import SkippedLine, Trace, TraceEncoder, decode_trace
from tests.exporters import records_sample as sample

INTS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TIMES = st.integers(min_value=0, max_value=2**50)
FLOATS = st.floats(allow_nan=False) | st.integers(0, 2**53).map(float)
TEXTS = st.text() | st.sampled_from(['"</script>', "\ud800", "a\nb\u2028", "\\", ""])
STAGE = st.builds(
    Stage,
    name=TEXTS,
    start_ns=TIMES,
    end_ns=TIMES,
    derived=st.booleans(),
    collective=st.none() | TEXTS,
    wire_bytes=st.none() | INTS,
    dtype=st.none() | TEXTS,
)
STAGES = st.lists(STAGE, max_size=3).map(tuple)
SPAN = st.builds(DeviceSpan, ready_ns=TIMES, done_ns=TIMES, stages=STAGES)


def records(cls: type, **given_fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for ``cls`` that fills every field by its annotation."""
    kinds = {
        "str": TEXTS,
        "Count": INTS,
        "Ns": INTS,
        "bool": st.booleans(),
        "float | None": st.none() | FLOATS,
    }
    kinds |= {
        "Count | None": st.none() | INTS,
        "Ns | None": st.none() | INTS,
        "str | None": st.none() | TEXTS,
    }
    kinds["Clock"] = st.sampled_from(["host", "device"])
    kinds["Scope"] = st.sampled_from(["global", "local"])
    transfer = st.builds(Transfer, collective=TEXTS, dtype=TEXTS, wire_bytes=INTS)
    kinds["tuple[Transfer, ...] | None"] = st.none() | st.lists(transfer, max_size=2).map(tuple)
    annotated = {n: t for c in cls.__mro__ for n, t in getattr(c, "__annotations__", {}).items()}
    missing = {name: kinds[kind] for name, kind in annotated.items() if name not in given_fields}
    return st.builds(cls, **missing, **given_fields)


PARAMETER_ERROR = records(ParameterError)
BUCKET = records(
    BucketRecord,
    error=st.none() | records(ErrorRecord, worst=st.lists(PARAMETER_ERROR, max_size=2).map(tuple)),
    bucket=st.integers(0, 3),
    ready_ns=TIMES,
    done_ns=TIMES,
    stages=STAGES,
    device=st.none() | SPAN,
)
STEP = records(StepRecord, first_ready_ns=TIMES, last_ready_ns=TIMES, done_ns=TIMES)
SHAPE = st.lists(st.integers(0, 9), max_size=3).map(tuple)
ENTRY = records(BucketLayout, parameters=st.lists(st.tuples(TEXTS, SHAPE), max_size=2).map(tuple))
LAYOUT = records(LayoutRecord, buckets=st.lists(ENTRY, max_size=2).map(tuple))
RUN = records(
    RunInfo,
    rank=st.integers(0, 99_999),
    wall_anchor_ns=st.integers(2**60, 2**62 - 1),
    host_anchor_ns=st.integers(-(2**61) + 1, 2**61 - 1),
)
STEPS = st.lists(st.tuples(STEP, st.lists(BUCKET, max_size=3).map(tuple)), max_size=3)


def encode(run: RunInfo, steps: Iterable[tuple[StepRecord, tuple[BucketRecord, ...]]]) -> str:
    """Return the lines of a file of ``steps`` that was not ended."""
    encoder = TraceEncoder(run)
    lines = [encoder.start()]
    for step, buckets in steps:
        lines += [encoder.buckets(step, buckets), encoder.step(step, buckets)]
    return "".join(lines)


def decode(text: str | bytes) -> Trace:
    """Decode a whole file's content."""
    data = text.encode("ascii") if isinstance(text, str) else text
    return decode_trace(data.splitlines(keepends=True))


ARRIVALS = st.lists(INTS, min_size=3, max_size=3).map(tuple)
SKEW = records(
    SkewRecord,
    time_ns=TIMES,
    rank=st.integers(0, 2),
    ranks=st.just((0, 1, 2)),
    arrivals_ns=ARRIVALS,
)


@given(st.lists(records(ClockRecord), max_size=3), st.lists(SKEW, max_size=3))
def test_clocks_and_skews_come_back_equal(
    clocks: list[ClockRecord], skews: list[SkewRecord]
) -> None:
    """Whatever they hold; Perfetto sees a skew as an instant."""
    encoder = TraceEncoder(sample.make_run())
    text = encoder.start() + "".join(map(encoder.clock, clocks))
    text += "".join(map(encoder.skew, skews)) + encoder.end({})
    trace = decode(text)
    assert (trace.clocks, trace.skews, trace.skipped) == (clocks, skews, [])
    events = [e for e in json.loads(text) if e.get("cat") == "hooktrace.skew"]
    assert [e["ph"] for e in events] == ["i"] * len(skews)


@given(RUN, STEPS, st.lists(LAYOUT, max_size=2), st.lists(records(AnomalyRecord), max_size=2))
def test_records_come_back_equal(
    run: RunInfo,
    steps: list[tuple[StepRecord, tuple[BucketRecord, ...]]],
    layouts: list[LayoutRecord],
    anomalies: list[AnomalyRecord],
) -> None:
    """Whatever a record holds, reading gives an equal one, and the file is strict JSON."""
    encoder = TraceEncoder(run)
    text = encoder.start()
    text += "".join(map(encoder.layout, layouts)) + "".join(map(encoder.anomaly, anomalies))
    for step, buckets in steps:
        text += encoder.buckets(step, buckets) + encoder.step(step, buckets)
    text += encoder.end({"steps": 2})

    assert decode(text) == Trace(
        run=run,
        steps=[step for step, _ in steps],
        buckets=[bucket for _, buckets in steps for bucket in buckets],
        layouts=layouts,
        anomalies=anomalies,
        lost={"steps": 2},
        closed=True,
    )
    events = json.loads(text, parse_constant=pytest.fail)
    assert len(events) == text.count("\n") - 2
    assert "<" not in text  # so that a page can hold the file's lines inside <script>


@given(STEPS)
def test_slices_of_a_row_nest(
    steps: list[tuple[StepRecord, tuple[BucketRecord, ...]]],
) -> None:
    """Slices of one row are nested or apart, because Perfetto drops one that is neither."""
    steps = [
        (replace(step, model="m"), tuple(replace(b, model="m") for b in buckets))
        for step, buckets in steps
    ]
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    text = encode(sample.make_run(), steps)
    for event in json.loads(text.rstrip(",\n") + "]", parse_float=str):
        if event["ph"] == "X":
            start = int(event["ts"].replace(".", ""))
            rows[event["tid"]].append((start, start + int(event["dur"].replace(".", ""))))
    for row in rows.values():
        for i, (a, b) in enumerate(row):
            for c, d in row[i + 1 :]:
                assert b <= c or d <= a or (a <= c and d <= b)


def test_a_layout_takes_no_room_on_the_row_of_the_steps() -> None:
    """The drain hands over layouts before the steps that they came after; all share one row."""
    encoder = TraceEncoder(sample.make_run())
    step, _ = sample.make_step(0)
    late = replace(sample.make_layout(), time_ns=step.done_ns + 1)
    lines = (encoder.layout(late) + encoder.step(step, ())).splitlines()
    events = [json.loads(line.rstrip(",")) for line in lines]
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"] == ["net: steps"]


def test_times_keep_their_nanoseconds_in_a_double() -> None:
    """A viewer that holds ``ts`` as a double still gets the wall-clock nanosecond."""
    run = replace(sample.make_run(), wall_anchor_ns=1_790_000_000_123_456_789)
    step, buckets = sample.make_step(7)
    buckets = tuple(
        replace(b, ready_ns=b.ready_ns + 321, done_ns=b.ready_ns + 328) for b in buckets
    )

    events = json.loads(encode(run, [(step, buckets)]).rstrip(",\n") + "]")

    epoch_ns = events[0]["args"]["ts_epoch_ns"]
    events = [e for e in events if e.get("cat") == "hooktrace.bucket"]
    assert [round(e["dur"] * 1000) for e in events] == [7, 7]
    starts = [round(e["ts"] * 1000) for e in events]
    assert [epoch_ns + start for start in starts] == [run.wall_ns(b.ready_ns) for b in buckets]


def test_what_cannot_be_read_is_named() -> None:
    """Cut, foreign, corrupt and incomplete lines are named by number and reason, others read."""
    step, buckets = sample.make_step()
    lines = encode(sample.make_run(), [(step, buckets)]).splitlines()
    where = next(i for i, line in enumerate(lines) if "hooktrace.bucket" in line)
    lines.insert(where, '{"ph":"X","cat":"python","name":"main","ts":1},')
    lines.insert(where, "\x00\x00\x00")
    lines.insert(where, '{"cat":"hooktrace.step","args":{"model":"m"}},')
    lines.insert(where, "[" * 100_000)
    lines.insert(where, "17,")

    trace = decode("\n".join(lines) + '\n{"cat":"hooktrace.buck')

    assert (trace.steps, trace.buckets) == ([step], list(buckets))
    reasons = {skipped.line - where: skipped.reason for skipped in trace.skipped}
    assert list(reasons) == [1, 2, 3, 4, 5, len(lines) + 1 - where]
    assert "missing" in reasons[3]
    assert reasons[4].startswith("not JSON")
    assert reasons[5] == "not an event of hooktrace: category 'python'"
    assert trace.skipped[-1].reason == "the line is cut off: the file ends in the middle of it"


def test_another_schema_or_run_is_not_read_as_this_one() -> None:
    """An unknown schema version and a second run in the file are named and end the reading."""
    run = sample.make_run()
    first = encode(run, [sample.make_step(0)])

    newer = decode(first.replace('"schema":1,', '"schema":99,'))
    assert newer == Trace(skipped=[SkippedLine(2, newer.skipped[0].reason)])
    assert "schema version 99" in newer.skipped[0].reason

    both = decode(first + encode(sample.make_run(1), [sample.make_step(1)]))
    assert both.run == run
    assert [step.step for step in both.steps] == [0]
    assert "a second run begins here" in both.skipped[0].reason


def test_reading_needs_no_torch() -> None:
    """The format's modules import the standard library and the records only."""
    package = Path(hooktrace.__file__).parent
    code = (
        "import sys, types; p = types.ModuleType('hooktrace'); "
        f"p.__path__ = [{str(package)!r}]; sys.modules['hooktrace'] = p; "
        "import hooktrace.records.trace_format; "
        "print([m for m in ('torch', 'numpy', 'tensorboard') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
