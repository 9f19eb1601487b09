"""Readers under damage: nothing in a file makes them raise, and undamaged lines are all read."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hooktrace.analysis.run import RankTrack, delays, load, reasons
from hooktrace.analysis.run.read import read_track
from hooktrace.records import reader
from hooktrace.records.content import RankRecords
from hooktrace.records.reader import read_parts
from hooktrace.testing.synthetic import rank_file
from tests.exporters import records_sample as sample

SLOW = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


RECORDS = (
    *(sample.make_run(), sample.make_layout(), sample.make_clock(), sample.make_anomaly()),
    sample.make_skew(1, rank=1, arrivals_ns=(0, 5), uncertainty_ns=1),
)
ON_DEVICE = sample.on_device(sample.checked(sample.make_step(2)))
LINES = rank_file(RECORDS, [sample.make_step(1), ON_DEVICE, sample.make_step(3)]).splitlines(True)
"""Of a file that has one of each kind of record; the run's is the first."""


def told(trace: RankRecords) -> list[Any]:
    """Return all records in the order of their kinds; of buckets what their own line says."""
    buckets = [(b.model, b.step, b.bucket, b.ready_ns, b.done_ns) for b in trace.buckets]
    return [
        *trace.assignments,
        *trace.clocks,
        *trace.anomalies,
        *trace.skews,
        *buckets,
        *trace.steps,
    ]


def expected(lines: list[bytes]) -> list[Any]:
    return told(sample.decoded(lines))


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


@given(st.integers(0, sum(map(len, LINES))))
@example(0)
@SLOW
def test_a_cut_at_any_byte(size: int) -> None:
    """The whole lines before it are read; the rest of one is named."""
    data = b"".join(LINES)[:size]
    count = data.count(b"\n")
    trace, track = read_both(data)
    rest = data.rpartition(b"\n")[2]
    only_its_end_is_gone = rest and rest == LINES[count].rstrip(b"\n")
    assert told(trace) == expected(LINES[: count + bool(only_its_end_is_gone)])
    assert track.steps.step.tolist() == [step.step for step in trace.steps]
    assert all(line == count + 1 and "cut off" in reason for line, reason in trace.skipped)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.integers(-(2**70), 2**70),
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(max_size=8), one, max_size=4),
    max_leaves=8,
)
ODD = st.sampled_from([2**63, -(2**63) - 1, 2**63 - 1, -1, 7, 10**400, "1", True, None, [], {}])


@pytest.mark.slow
@given(st.data(), st.integers(0, len(LINES) - 1), ODD | JSON)
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
    if number == 0 and trace.skipped:
        return
    assert [at for at, _ in trace.skipped] in ([], [number + 1])
    found = iter(told(trace))
    others = expected([*LINES[:number], *LINES[number + 1 :]])
    assert all(any(one == other for other in found) for one in others)
    for record in [*trace.buckets, *trace.steps, *trace.anomalies, *trace.assignments]:
        assert msgspec.convert(msgspec.to_builtins(record), type(record)) == record
    assert all(0 <= skew.rank < len(skew.arrivals_ns) for skew in trace.skews)


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
    assert told(trace) == expected(LINES)


def test_an_endless_line_stays_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a line that is longer than any of ours only the beginning is read; the next is whole."""
    monkeypatch.setattr(reader, "LONGEST_LINE", 1000)
    monkeypatch.setattr(reader, "_BLOCK", 100)
    path = tmp_path / "rank00000.jsonl"
    path.write_bytes(b"".join(LINES[:4]) + b"[" + b"1," * 5000 + b"1]\n" + b"".join(LINES[4:]))
    assert max(map(len, reader.read_blocks(path))) <= 1100
    trace = read_parts([path])
    assert [line for line, _ in trace.skipped] == [5]
    assert "longer than any" in trace.skipped[0].reason
    assert told(trace) == expected(LINES)
