"""Columns hold what the records of a file do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.run import FLAGS, RankTrack
from hooktrace.analysis.run.columns import UNKNOWN
from hooktrace.analysis.run.read import ColumnBuilder, read_track
from hooktrace.records import STAGES, BucketRecord
from tests.analysis.run.files import run_of, steps_of, text_of
from tests.exporters.records_sample import STEP_NS, checked, make_step, on_device


def track_of(text: str | bytes) -> RankTrack:
    data = text.encode() if isinstance(text, str) else text
    builder = ColumnBuilder()
    reader = builder.reader()
    reader.feed(data)
    return builder.track(reader.content(), [])


def check_bucket(track: RankTrack, row: int, record: BucketRecord) -> None:
    columns = track.buckets
    assert track.models[columns.model[row]] == (record.model, record.hook)
    facts = track.facts[columns.facts[row]]
    assert (facts.dtype, facts.numel) == (record.dtype, record.numel)
    for name in ("step", "bucket", "rebuild", "gradient_bytes", "wire_bytes", "bus_bytes"):
        value = getattr(record, name)
        assert getattr(columns, name)[row] == (UNKNOWN if value is None else int(value)), name
    launched = record.ready_ns + columns.launched_after[row]
    times = columns.called[row], columns.ready[row], launched, columns.done[row]
    assert times == (record.ready_ns, record.ready_ns, record.launched_ns, record.done_ns)
    assert columns.stages[row] == len(record.stages)
    flags = {name for name, bit in FLAGS.items() if columns.flags[row] & bit}
    marks = ("is_last", "join_dummy", "warmup", "bounded")
    wanted = {name for name in marks if getattr(record, name)}
    assert flags == wanted | ({"exception"} if record.exception else set())
    assert track.exceptions.get(row) == record.exception
    assert track.errors.get(row) == record.error
    begin = columns.first_stage[row]
    stages = track.stages
    for at, stage in enumerate(record.stages, begin):
        assert STAGES[stages.name[at]] == stage.name
        times = record.ready_ns + stages.start[at], record.ready_ns + stages.end[at]
        assert times == (stage.start_ns, stage.end_ns)
        assert (stages.derived[at], track.bucket_of_stages()[at]) == (stage.derived, row)


def test_every_field_of_host_buckets() -> None:
    """Ordinary ones, unknown numbers, marks, errors and an exception; steps are in ``golden/``."""
    step, (a, b) = make_step(3)
    odd = (
        step,
        (
            replace(a, wire_bytes=None, bus_bytes=None, join_dummy=True, stages=(), bounded=True),
            replace(b, warmup=True, exception="ValueError: no", model="other"),
        ),
    )
    steps = [*steps_of(2), checked(make_step(2)), odd]
    track = track_of(text_of(run_of(1), steps))
    records = [bucket for _, buckets in steps for bucket in buckets]
    assert len(track.buckets) == len(records)
    for row, record in enumerate(records):
        check_bucket(track, row, record)


def test_a_device_bucket_is_placed_after_its_steps_first_ready() -> None:
    """``called`` stays the host's; without resolved times it is untimed."""
    resolved, unresolved = on_device(make_step(1)), on_device(make_step(2), resolved=False)
    track = track_of(text_of(run_of(0), [resolved, unresolved]))
    step, buckets = resolved
    for row, bucket in enumerate(buckets):
        assert bucket.device is not None
        assert track.buckets.called[row] == bucket.ready_ns
        assert track.buckets.ready[row] == step.first_ready_ns + bucket.device.ready_ns
        assert track.buckets.done[row] == step.first_ready_ns + bucket.device.done_ns
        for at, stage in enumerate(bucket.device.stages, track.buckets.first_stage[row]):
            ready = track.buckets.ready[row]
            assert ready + track.stages.start[at] == step.first_ready_ns + stage.start_ns
            assert ready + track.stages.end[at] == step.first_ready_ns + stage.end_ns
    assert track.buckets.having("device").tolist() == [True, True, False, False]
    assert track.buckets.having("untimed").tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    "broken",
    [
        {"wire_ns": ["long", 1]},
        {"stage_starts_ns": [[1, 2], None], "stage_ns": [[1], None]},
        {"ready_ns": ["soon", 1]},
        {"step": 2**70},
        {"error": [1, None]},
        {"wire_bytes": [1]},
    ],
    ids=str,
)
def test_a_line_that_cannot_be_read_is_left_out_whole(broken: dict[str, Any]) -> None:
    import json

    lines = text_of(run_of(0), steps_of(2)).splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"kind":"buckets"' in line)
    line = json.loads(lines[at])
    lines[at] = json.dumps(line | broken | {"calls": line["calls"] | broken}) + "\n"
    track = track_of("".join(lines))
    assert len(track.buckets) == 2
    assert len(track.stages) == sum(track.buckets.stages)
    assert [line for line, _ in track.records.skipped] == [at + 1]


def test_parts_of_a_run_are_read_as_one(tmp_path: Path) -> None:
    """In order; a part says the run again; a period is the next step's, and the last one's none."""
    steps, paths = steps_of(4), [tmp_path / "part0", tmp_path / "part1"]
    for path, own in zip(paths, (steps[:2], steps[2:]), strict=True):
        path.write_text(text_of(run_of(0), own))
    track = read_track(paths)
    assert track.steps.step.tolist() == [0, 1, 2, 3]
    assert track.steps.period.tolist() == [STEP_NS] * 3 + [UNKNOWN]
    assert track.paths == [str(path) for path in paths]
    assert track.records.closed
