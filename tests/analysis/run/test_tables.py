"""What stands in the columns where a clock, a period or a time is not known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.frames.columns import TABLES
from hooktrace.analysis.run.tables import Values, made
from hooktrace.records import CompletedStep
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.run.files import write_times
from tests.analysis.runs import run_in

JOB = SyntheticJob()


def write(
    folder: Path,
    begins_ms: list[int],
    change: Callable[[CompletedStep], CompletedStep] = lambda step: step,
    *,
    clocks: bool = True,
) -> None:
    """One bucket of one step: called 0 ms after its start, on the wire until 20 ms."""
    times = [[(0, 0, begin, 20, 21)] for begin in begins_ms]
    write_times(folder, [times], change, clocks=clocks)


def table_of(folder: Path, name: str) -> dict[str, Values]:
    columns, rows = TABLES[name]
    return made(rows(run_in(folder)), columns)


def listed(values: Values) -> list[object]:
    """Return names or numbers, ``None`` where they are not known."""
    found: list[object] = values.tolist()
    return found


def test_without_rank_0_and_clocks_there_is_no_clock_to_tell_times_in(tmp_path: Path) -> None:
    """The wall clock is then the rank's own machine's."""
    write(tmp_path, [1, 9], clocks=False)
    record_path(tmp_path, 0).unlink()
    table = table_of(tmp_path, "buckets")
    assert listed(table["called_ns"]) == [None]
    assert listed(table["time"]) == [JOB.wall_ns + JOB.start_ns]


def test_device_buckets_without_times_have_none(tmp_path: Path) -> None:
    """The host knows when it called the hook, not when the result was there."""

    def untimed(step: CompletedStep) -> CompletedStep:
        record, buckets = step
        return record, tuple(replace(b, device_type="cuda", stages=()) for b in buckets)

    write(tmp_path, [1, 1], untimed)
    table = table_of(tmp_path, "buckets")
    assert listed(table["done_ns"]) == [None, None]
    assert listed(table["duration_ns"]) == [None, None]
    assert listed(table["called_ns"]) == [JOB.start_ns] * 2
