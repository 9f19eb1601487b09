"""Hangs of a run: told once, however many files have them, and over where anything says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.run import Hang, hangs
from hooktrace.records import HangRecord
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, simulate
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.run.files import add, drop
from tests.analysis.runs import run_in

JOB = SyntheticJob(steps=20)
S = 1_000_000_000


def hangs_in(folder: Path) -> list[Hang]:
    return hangs(run_in(folder))


HANG = '"kind":"hang"'
END = "ended_after_ns"
EVERY = range(JOB.ranks)
LASTS, WENT_ON = SyntheticHang(step=12), SyntheticHang(step=12, went_on_after_s=42)
Change = Callable[[Path, HangRecord], object]


def enqueued(folder: Path) -> None:
    """Write steps as of a device that the host has only told what to do."""
    for rank in EVERY:
        path = record_path(folder, rank)
        path.write_text(path.read_text().replace('"clock":"host"', '"clock":"device"'))


def without_step(folder: Path, record: HangRecord) -> None:
    """Rank 3 may have been stopped when the others had got their result."""
    drop(folder, EVERY, END)
    for step in range(12, 21):
        drop(folder, [3], f'"rebuild":1,"step":{step},"clock"')


def broken_off(folder: Path, record: HangRecord) -> None:
    step, _ = JOB.step(12, next(iter(simulate(JOB))).moments(1))
    add(folder, 1, replace(step, complete=False), replace(record, ended_after_ns=60 * S))


def error_told(folder: Path, record: HangRecord) -> None:
    broken_off(folder, record)
    add(
        folder,
        0,
        replace(record, ended_after_ns=60 * S, failed=True, message="it ended: Connection closed"),
    )


def alone(rank: int = 0, **fields: Any) -> Change:
    """Return what leaves one file with a record of the hang, which has other fields."""

    def change(folder: Path, record: HangRecord) -> None:
        drop(folder, EVERY, HANG)
        add(folder, rank, replace(record, **fields))

    return change


NO_END = "no end of it is recorded"
BY_STEPS = "by the steps that follow"


@pytest.mark.parametrize(
    ("hang", "change", "outcome", "took_s"),
    [
        (LASTS, lambda *_: None, NO_END, None),
        (WENT_ON, lambda *_: None, "it went on after at most 42 s", 42),
        (SyntheticHang(step=12, killed=(1, 2)),
         lambda folder, record: add(folder, 3, replace(record, ended_after_ns=50 * S)),
         "it went on after at most 50 s", 50),
        (WENT_ON, lambda folder, _: drop(folder, EVERY, END),
         f"it went on after at most 42 s, {BY_STEPS}", 42),
        (WENT_ON, lambda folder, _: (drop(folder, EVERY, END), enqueued(folder)),
         f"it went on after about 42 s, {BY_STEPS}", 42),
        (WENT_ON, without_step, NO_END, None),
        (LASTS, broken_off, "it was over after at most 60 s, but the step broke off", 60),
        (LASTS, error_told, "it ended: Connection closed", 60),
        (LASTS, lambda folder, record: add(
            folder, 0, replace(record, ended_after_ns=60 * S, failed=True, message="failed")),
         "failed", 60),
        (LASTS, alone(step=11, bucket=-1), NO_END, None),
        (LASTS, alone(step=10, bucket=-1), None, None),
    ],
    ids=["lasts", "went on", "one file with the end is enough", "steps tell that it went on",
         "steps of a device tell it by its clock", "a rank without the step", "step broke off",
         "it ended in an error", "the last word alone", "outside of hooks, last step whole",
         "outside of hooks, a later step whole"],
)  # fmt: skip
def test_what_is_said_of_its_end(
    tmp_path: Path, hang: SyntheticHang, change: Change, outcome: str | None, took_s: float | None
) -> None:
    """However many files have it, it is one; only a step that is whole afterwards went on."""
    change(tmp_path, write_hung_job(JOB, hang, tmp_path))
    (found,) = hangs_in(tmp_path)
    assert outcome in (None, found.outcome)
    assert found.went_on == (outcome is None or "went on" in outcome)
    if outcome is not None:
        end = None if took_s is None else pytest.approx(found.start + took_s * S, abs=S // 10)
        assert found.end == end


def test_numbers_that_begin_anew_are_other_hangs(tmp_path: Path) -> None:
    """As after another rank has taken over; the one that lasts comes first."""
    record = write_hung_job(JOB, LASTS, tmp_path)
    other = replace(record, step=15, since_ns=record.since_ns + 60 * S)
    add(tmp_path, 0, replace(record, ended_after_ns=40 * S), other)
    first, second = hangs_in(tmp_path)
    assert (first.record.step, first.end, first.ranks) == (15, None, (0,))
    assert (second.record.step, second.ranks) == (12, (0, 1, 2, 3))
    assert second.end == second.start + 40 * S


def test_of_two_records_of_one_hang_the_later_one_is_told(tmp_path: Path) -> None:
    """Its kind was not known at first."""
    record = write_hung_job(JOB, SyntheticHang(step=12, kind="unknown"), tmp_path)
    add(tmp_path, 1, replace(record, kind="died", message="rank 2 died"))
    (hang,) = hangs_in(tmp_path)
    assert (hang.record.kind, hang.record.sentence) == ("died", "rank 2 died")


def test_since_is_in_the_clock_of_who_recorded_it(tmp_path: Path) -> None:
    """And where that rank has no file, the wall clock is what is left."""
    record = write_hung_job(JOB, LASTS, tmp_path)
    drop(tmp_path, EVERY, HANG)
    add(tmp_path, 1, replace(record, rank=3, since_ns=record.since_ns - JOB.offset_ns(3)))
    (hang,) = hangs_in(tmp_path)
    assert hang.start == record.since_ns
    record_path(tmp_path, 3).unlink()
    (hang,) = hangs_in(tmp_path)
    assert hang.start == pytest.approx(record.since_ns, abs=1_000_000)
