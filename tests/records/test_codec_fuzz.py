"""Readers under damage: nothing in a file makes them raise, and undamaged lines are all read.

A file is made of lines whose records are known.  Each kind of damage says which lines it touched;
the records of all others must come back, in order, and what else comes back must be of touched
lines.  A view line that is damaged is not named: nothing is lost with it.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hooktrace.analysis.run import RankTrack, delays, load, reasons
from hooktrace.analysis.run.read import read_track
from hooktrace.records import (
    AnomalyRecord,
    AssignmentRecord,
    BucketRecord,
    ClockRecord,
    SkewRecord,
    Stage,
    StepRecord,
    reader,
)
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.content import RankRecords
from hooktrace.records.lines import Losses
from hooktrace.records.reader import read_parts
from tests.exporters import records_sample as sample

SLOW = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


def content() -> list[bytes]:
    """Return the lines of a file that has one of each kind of record."""
    encoder = RecordEncoder()
    data = encoder.record(sample.make_run()) + encoder.record(sample.make_layout())
    data += encoder.record(
        ClockRecord(time_ns=1, offset_ns=2, uncertainty_ns=3, round_trip_ns=6, pings=4)
    )
    host, device = sample.make_step(1), sample.on_device(sample.checked(sample.make_step(2)))
    for step, buckets in (host, device, sample.make_step(3)):
        data += encoder.buckets(buckets) + encoder.record(step)
    data += encoder.record(sample.make_anomaly())
    data += encoder.record(sample.make_skew(1, rank=1, arrivals_ns=(0, 5), uncertainty_ns=1))
    data += encoder.record(
        Losses(lost={"steps": 1}, left_out={"buckets": 2}, removed={"parts": 3}, closed=True)
    )
    return data.splitlines(keepends=True)


LINES = content()
RUN_LINE = 0


def records_of(trace: RankRecords) -> list[Any]:
    """Return all records in the order of their kinds, buckets without what they share."""
    few = [*trace.assignments, *trace.clocks, *trace.anomalies, *trace.skews]
    return [*few, *map(by_itself, trace.buckets), *trace.steps]


def by_itself(bucket: BucketRecord) -> BucketRecord:
    """Return what a bucket's own line says."""
    device = bucket.device
    return replace(
        bucket,
        **UNKNOWN,
        bus_bytes=None,
        stages=tuple(map(bare, bucket.stages)),
        device=device and replace(device, stages=tuple(map(bare, device.stages))),
    )


def bare(stage: Stage) -> Stage:
    """Return a stage's name and times."""
    return Stage(name=stage.name, start_ns=stage.start_ns, end_ns=stage.end_ns)


UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("hook", "dtype", "device_type"), "?"),
    **dict.fromkeys(("numel", "gradient_bytes", "parameter_count"), 0),
    "is_last": False,
}


RECORDS = [records_of(sample.decoded([line])) for line in LINES]
"""By line: what it holds; a line of buckets holds two."""


def is_subsequence(part: list[Any], whole: list[Any]) -> bool:
    """Return whether ``part`` is what is left of ``whole`` when some are taken out."""
    rest = iter(whole)
    return all(any(item == other for other in rest) for item in part)


def by_kind(records: list[Any]) -> list[Any]:
    """Sort as ``records_of`` does, keeping the order within a kind."""
    few = [AssignmentRecord, ClockRecord, AnomalyRecord, SkewRecord]
    return sorted(records, key=lambda r: [*few, BucketRecord, StepRecord].index(type(r)))


def read_both(data: bytes) -> tuple[RankRecords, RankTrack]:
    """Read a file as records and as columns, and put the columns in rank 0's clock."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "rank00000.jsonl")
        path.write_bytes(data)
        trace = read_parts([path])
        track = read_track([path])
        run = load({0: [path], 1: [path]}, processes=1)  # nothing, of a rank that the run has not
    for model in run.model_names:
        delays(run, model)
    reasons(run)
    assert [line for line, _ in trace.skipped] == sorted({line for line, _ in trace.skipped})
    assert len(trace.skipped) <= 100
    return trace, track


@dataclass
class Damaged:
    """A file's content, and the numbers of the lines that are as they were, from 0."""

    data: bytes
    whole: list[int]


@st.composite
def flipped(draw: st.DrawFn) -> Damaged:
    """Change some bytes; a newline that goes makes one line of two."""
    data = bytearray(b"".join(LINES))
    owner = [i for i, line in enumerate(LINES) for _ in line]
    touched = set()
    for at in draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=8)):
        touched |= {owner[at]} | ({owner[at] + 1} if data[at] == 10 else set())
        data[at] ^= draw(st.integers(1, 255))
    return Damaged(bytes(data), [i for i in range(len(LINES)) if i not in touched])


@pytest.mark.slow
@given(flipped())
@SLOW
def test_flipped_bytes(damaged: Damaged) -> None:
    """A digit that became another one cannot be told; the lines around it are as they were."""
    trace, track = read_both(damaged.data)
    if RUN_LINE not in damaged.whole and any("from here on" in r for _, r in trace.skipped):
        return  # it says another schema or run, and then nothing of it may be read
    expected = by_kind([r for i in damaged.whole for r in RECORDS[i]])
    found = records_of(trace)
    assert is_subsequence(expected, found)
    touched = len(LINES) - len(damaged.whole)
    assert len(found) <= len(expected) + 2 * touched  # a line of buckets has two
    steps = [r.step for r in expected if isinstance(r, StepRecord)]
    assert is_subsequence(steps, track.steps.step.tolist())
    assert len(track.steps) <= len(steps) + touched
    buckets = [(r.step, r.ready_ns) for r in expected if isinstance(r, BucketRecord)]
    found = zip(track.buckets.step.tolist(), track.buckets.called.tolist(), strict=True)
    assert is_subsequence(buckets, list(found))
    assert len(track.buckets) <= len(buckets) + 2 * touched


@given(st.integers(0, sum(map(len, LINES))))
@example(0)
@SLOW
def test_a_cut_at_any_byte(size: int) -> None:
    """The whole lines before it are read; the rest of one is named."""
    data = b"".join(LINES)[:size]
    count = data.count(b"\n")
    trace, _ = read_both(data)
    rest = data.rpartition(b"\n")[2]
    only_its_end_is_gone = rest and rest == LINES[count].rstrip(b"\n")
    whole = [r for i in range(count + bool(only_its_end_is_gone)) for r in RECORDS[i]]
    assert records_of(trace) == by_kind(whole)
    assert all(line == count + 1 and "cut off" in reason for line, reason in trace.skipped)


@pytest.mark.slow
@given(st.lists(st.integers(0, len(LINES) - 1), max_size=2 * len(LINES)))
@SLOW
def test_lines_dropped_doubled_and_shuffled(order: list[int]) -> None:
    """Each line stands for itself."""
    trace, _ = read_both(b"".join(LINES[i] for i in order))
    assert records_of(trace) == by_kind([r for i in order for r in RECORDS[i]])
    assert trace.skipped == []


@pytest.mark.parametrize("anchors", [(2**63 - 1, -(2**63)), (0, 2**63 - 1), (2**62, 0)])
def test_a_run_whose_clock_is_no_time(tmp_path: Path, anchors: tuple[int, int]) -> None:
    """A difference of two ranks' clocks that does not fit into 64 bits would end the merging."""
    wall_ns, host_ns = anchors
    event = json.loads(LINES[RUN_LINE])
    event |= {"rank": 1, "wall_anchor_ns": wall_ns, "host_anchor_ns": host_ns}
    line = json.dumps(event).encode() + b"\n"
    traces = {rank: [tmp_path / f"rank{rank:05d}.jsonl"] for rank in range(2)}
    traces[0][0].write_bytes(b"".join(LINES))
    without_clocks = [text for text in LINES if b'"kind":"clock"' not in text]
    traces[1][0].write_bytes(b"".join([line, *without_clocks[1:]]))
    run = load(traces, processes=1)
    assert [len(delay.ns) for model in run.model_names for delay in delays(run, model)] == [6, 6]
    bad = read_parts([traces[1][0]])
    assert bad.run is None
    assert [number for number, _ in bad.skipped] == [RUN_LINE + 1]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=8)
    | st.integers(-(2**70), 2**70)
    | st.just(10**400),
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(max_size=8), one, max_size=4),
    max_leaves=8,
)


READ_LINES = [RUN_LINE, len(LINES) - 1, *(i for i, found in enumerate(RECORDS) if found)]
ODD = st.sampled_from([2**63, -(2**63) - 1, 2**63 - 1, -1, 7, 1.5, "1", True, None, [], {}])


@pytest.mark.slow
@given(st.data(), st.sampled_from(READ_LINES), ODD | JSON)
@SLOW
def test_any_value_in_any_field(data: st.DataObject, number: int, value: Any) -> None:
    """The line is read as another record of the same types, or named; all others are read."""
    event = place = json.loads(LINES[number])
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 3)):
            place = place[key]
        else:
            place[key] = value
            break
    text = json.dumps(event, separators=(",", ":")).encode() + b"\n"
    trace, track = read_both(b"".join([*LINES[:number], text, *LINES[number + 1 :]]))
    names = [*(name for pair in track.models for name in pair), *(f.dtype for f in track.facts)]
    assert {type(name) for name in [*names, *track.exceptions.values()]} <= {str}
    if number == RUN_LINE and trace.skipped:
        return
    assert [at for at, _ in trace.skipped] in ([], [number + 1])
    others = by_kind([r for i, found in enumerate(RECORDS) if i != number for r in found])
    assert is_subsequence(others, records_of(trace))
    for record in records_of(trace):
        assert msgspec.convert(msgspec.to_builtins(record), type(record)) == record
    assert all(0 <= skew.rank < len(skew.arrivals_ns) for skew in trace.skews)


@pytest.mark.slow
@given(st.binary(max_size=300))
@SLOW
def test_any_bytes(data: bytes) -> None:
    """Read as nothing, alone and in the middle of a file."""
    read_both(data)
    trace, _ = read_both(b"".join([*LINES[:7], data, b"\n", *LINES[7:]]))
    assert records_of(trace) == by_kind([r for found in RECORDS for r in found])


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"".join(LINES)),
        b"\n".join(b'{"traceEvents":[%d]}' % i for i in range(5000)),
        b"\x00" * 5000,
        b"[" * 200_000,
    ],
    ids=["gzip", "other lines", "zeros", "nested"],
)
def test_a_foreign_file_is_told_in_one_sentence(data: bytes) -> None:
    """Not a line at a time."""
    trace, track = read_both(data)
    assert len(trace.skipped) == 1
    assert "no line of it is a record of hooktrace" in trace.skipped[0].reason
    assert trace.unnamed == 0
    assert track.records.skipped == trace.skipped


def test_many_damaged_lines_are_counted() -> None:
    """A hundred are named; the records around them are there."""
    trace, track = read_both(b"".join(LINES[:5]) + b"{oh no\n" * 1000 + b"".join(LINES[5:]))
    assert [line for line, _ in trace.skipped] == list(range(6, 106))
    assert trace.unnamed == track.records.unnamed == 900
    assert records_of(trace) == by_kind([r for found in RECORDS for r in found])


def test_an_endless_line_stays_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a line that is longer than any of ours only the beginning is read; the next is whole."""
    monkeypatch.setattr(reader, "LONGEST_LINE", 1000)
    monkeypatch.setattr(reader, "_BLOCK", 100)
    path = tmp_path / "rank00000.jsonl"
    path.write_bytes(b"".join(LINES[:4]) + b"[" + b"1," * 5000 + b"1]\n" + b"".join(LINES[4:]))
    blocks = list(reader.read_blocks(path))
    assert max(map(len, blocks)) <= 1100
    trace = read_parts([path])
    assert [line for line, _ in trace.skipped] == [5]
    assert "longer than any" in trace.skipped[0].reason
    assert records_of(trace) == by_kind([r for found in RECORDS for r in found])
