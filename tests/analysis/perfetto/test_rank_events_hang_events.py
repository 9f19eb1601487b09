"""Hangs in Perfetto's trace: on those that wait and on those that are waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.perfetto import export
from hooktrace.analysis.perfetto.rank_events import hang_slices
from hooktrace.analysis.run import Hang
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.perfetto.trace_events import Event, read, validate
from tests.analysis.runs import run_in

JOB = SyntheticJob(steps=20)


def events_of(folder: Path, hang: SyntheticHang) -> list[Event]:
    """Export a job that hung; return the events of the hang, by rank."""
    write_hung_job(JOB, hang, folder)
    out = folder / "all.json"
    found = export(run_in(folder), out)
    events = validate(read(out))
    assert found.slices == sum(e["ph"] in "XB" for e in events)
    return sorted((e for e in events if e.get("cat") == "hang"), key=lambda e: e["pid"])


def test_a_hang_without_end_begins_and_does_not_end(tmp_path: Path) -> None:
    """So Perfetto draws it to the trace's end, whatever else is there."""
    events = events_of(tmp_path, SyntheticHang(step=12, killed=(2,)))
    assert [(e["ph"], e["pid"], e["name"]) for e in events] == [
        ("B", 0, "hang: waits"),
        ("B", 1, "hang: waits"),
        ("B", 2, "hang: is waited for"),
        ("B", 3, "hang: waits"),
    ]
    assert events[0]["args"]["message"].startswith("bucket 5 of step 12 has waited 31 s")
    assert events[0]["args"]["outcome"] == "no end of it is recorded"


def test_one_that_went_on_has_its_length(tmp_path: Path) -> None:
    """On the row of hangs, so that it hides no bucket."""
    events = events_of(tmp_path, SyntheticHang(step=12, went_on_after_s=42))
    assert [e["ph"] for e in events] == ["X"] * 4
    assert [e["dur"] for e in events] == [pytest.approx(42e6)] * 4
    assert events[0]["args"]["outcome"] == "it went on after at most 42 s"


def test_a_hang_in_the_first_step_is_where_the_trace_begins(tmp_path: Path) -> None:
    """There is nothing else."""
    assert [e["ts"] for e in events_of(tmp_path, SyntheticHang(step=1))] == [0.0] * 4


def test_a_unit_is_named() -> None:
    """Of a sharded model."""
    record = replace(SyntheticHang(step=1).record(JOB, 0), unit="head all-gather (forward)")
    hang = Hang(record=record, start=0, end=1, last_word="", went_on=True, ranks=(0,))
    assert [one.args["unit"] for one in hang_slices([hang], 2)] == [record.unit]


def test_hangs_that_overlap_have_rows_of_their_own() -> None:
    """Perfetto drops what overlaps without nesting."""
    record = SyntheticHang(step=1).record(JOB, 0)

    def of(start: int, end: int | None) -> Hang:
        return Hang(record=record, start=start, end=end, last_word="", went_on=True, ranks=(0,))

    hangs = [of(0, 10), of(5, None), of(10, 20), of(15, 30)]
    assert [(one.start, one.row) for one in hang_slices(hangs, 2)] == [
        (0, 0), (5, 1), (10, 0), (15, 2)
    ]  # fmt: skip
