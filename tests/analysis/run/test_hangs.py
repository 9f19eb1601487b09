"""Hangs of a run: told once, however many files have them, and over where anything says so."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hooktrace.analysis.run import Hang, hangs
from hooktrace.records import HangRecord
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import record_path
from hooktrace.records.hang import hang_kind
from hooktrace.testing.synthetic import SyntheticJob, simulate
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.runs import run_in

JOB = SyntheticJob(steps=20)
S = 1_000_000_000


def hangs_in(folder: Path) -> list[Hang]:
    """Read the hangs of what lies in a folder."""
    return hangs(run_in(folder))


def add(folder: Path, rank: int, *records: HangRecord) -> None:
    """Write records at the end of a rank's file."""
    with record_path(folder, rank).open("ab") as file:
        file.write(b"".join(map(RecordEncoder().record, records)))


def drop(folder: Path, ranks: Iterable[int], words: str) -> None:
    """Leave out the lines of some ranks' files that have these words; there are such."""
    for rank in ranks:
        path = record_path(folder, rank)
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if words not in line]
        assert len(kept) < len(lines)
        path.write_text("".join(kept))


def test_a_hang_that_all_files_have_is_one(tmp_path: Path) -> None:
    """It begins when the first rank had the bucket ready, in rank 0's clock."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    (hang,) = hangs_in(tmp_path)
    assert (hang.record, hang.ranks) == (record, (0, 1, 2, 3))
    assert (hang.start, hang.end, hang.took_ns) == (record.since_ns, None, None)
    assert hang.sentence == (
        "bucket 5 of step 12 has waited 31 s on ranks 0, 1, 3 for rank 2, which is in "
        "`data.py:88 next_batch`, 1 step behind"
    )


def test_a_hang_that_went_on_keeps_its_sentence(tmp_path: Path) -> None:
    """The record of its end adds when that was."""
    record = write_hung_job(JOB, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    (hang,) = hangs_in(tmp_path)
    assert (hang.record, hang.went_on, hang.took_ns) == (record, True, 42 * S)
    assert hang.outcome == "it went on after at most 42 s"


def test_one_file_with_the_end_is_enough(tmp_path: Path) -> None:
    """Others may have been full, or killed."""
    record = write_hung_job(JOB, SyntheticHang(step=12, killed=(1, 2)), tmp_path)
    add(tmp_path, 3, replace(record, ended_after_ns=50 * S))
    (hang,) = hangs_in(tmp_path)
    assert (hang.took_ns, hang.ranks) == (50 * S, (0, 3))
    assert hang.outcome == "it went on after at most 50 s"


def test_steps_tell_that_it_went_on(tmp_path: Path) -> None:
    """Where no record of the end is there, but all that waited have the step as whole."""
    write_hung_job(JOB, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    drop(tmp_path, range(4), "ended_after_ns")
    (hang,) = hangs_in(tmp_path)
    assert (hang.last_word, hang.went_on) == (None, True)
    assert hang.outcome == "it went on after at most 42 s, by the steps that follow"
    assert hang.took_ns == pytest.approx(42 * S, abs=S // 10)


def test_steps_of_a_device_tell_it_by_the_devices_clock(tmp_path: Path) -> None:
    """The host has enqueued the step long before: that is no end."""
    write_hung_job(JOB, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    drop(tmp_path, range(4), "ended_after_ns")
    for rank in range(4):
        path = record_path(tmp_path, rank)
        records = map(msgspec.json.decode, path.read_bytes().splitlines())
        path.write_bytes(b"".join(map(enqueued, records)))
    (hang,) = hangs_in(tmp_path)
    assert hang.went_on
    assert hang.outcome == "it went on after about 42 s, by the steps that follow"


def enqueued(record: dict[str, Any]) -> bytes:
    """Return a record's line, a step's as of a device that the host has only told what to do."""
    if record["kind"] == "step":
        record |= {"clock": "device", "done_ns": record["last_ready_ns"]}
    return msgspec.json.encode(record) + b"\n"


def test_one_rank_without_the_step_is_a_hang_without_end(tmp_path: Path) -> None:
    """The others may have got their result before it was stopped."""
    write_hung_job(JOB, SyntheticHang(step=12, went_on_after_s=42), tmp_path)
    drop(tmp_path, range(4), "ended_after_ns")
    for step in range(12, 21):
        drop(tmp_path, [3], f'"generation":1,"step":{step},"clock"')
    (hang,) = hangs_in(tmp_path)
    assert hang.end is None


def test_numbers_that_begin_anew_are_other_hangs(tmp_path: Path) -> None:
    """As after another rank has taken over; the one that lasts comes first."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    other = replace(record, step=15, since_ns=record.since_ns + 60 * S)
    add(tmp_path, 0, replace(record, ended_after_ns=40 * S), other)
    first, second = hangs_in(tmp_path)
    assert (first.record.step, first.end, first.ranks) == (15, None, (0,))
    assert (second.record.step, second.took_ns, second.ranks) == (12, 40 * S, (0, 1, 2, 3))


def test_of_two_records_of_one_hang_the_later_one_is_told(tmp_path: Path) -> None:
    """Its kind was not known at first."""
    record = write_hung_job(JOB, SyntheticHang(step=12, kind="unknown"), tmp_path)
    add(tmp_path, 1, replace(record, kind="died", message="rank 2 died"))
    (hang,) = hangs_in(tmp_path)
    assert (hang.record.kind, hang.sentence) == ("died", "rank 2 died")


def test_since_is_in_the_clock_of_who_recorded_it(tmp_path: Path) -> None:
    """And where that rank has no file, the wall clock is what is left."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    drop(tmp_path, range(4), '"kind":"hang"')
    add(tmp_path, 1, replace(record, rank=3, since_ns=record.since_ns - JOB.offset_ns(3)))
    (hang,) = hangs_in(tmp_path)
    assert hang.start == record.since_ns
    record_path(tmp_path, 3).unlink()
    (hang,) = hangs_in(tmp_path)
    assert hang.start == pytest.approx(record.since_ns, abs=1_000_000)


def test_the_remedy_of_its_kind_is_no_part_of_the_sentence(tmp_path: Path) -> None:
    """A message ends in it, and whoever shows the hang shows it apart."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    drop(tmp_path, range(4), '"kind":"hang"')
    add(tmp_path, 0, replace(record, message=f"{record.message}; {hang_kind('busy').remedy}"))
    (hang,) = hangs_in(tmp_path)
    assert hang.sentence == record.message


def test_a_hang_that_ended_in_an_error_did_not_go_on(tmp_path: Path) -> None:
    """The step broke off on a rank that waited; the record of its end may say how."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    step, _ = JOB.step(12, next(iter(simulate(JOB))).moments(1))
    broken = RecordEncoder().record(replace(step, complete=False))
    with record_path(tmp_path, 1).open("ab") as file:
        file.write(broken)
    add(tmp_path, 1, replace(record, ended_after_ns=60 * S))
    (hang,) = hangs_in(tmp_path)
    assert (hang.took_ns, hang.went_on) == (60 * S, False)
    assert hang.outcome == "it was over after at most 60 s, but the step broke off"
    add(tmp_path, 0, replace(record, ended_after_ns=60 * S, message="it ended: Connection closed"))
    (hang,) = hangs_in(tmp_path)
    assert (hang.outcome, hang.went_on) == ("it ended: Connection closed", False)


def test_the_last_word_alone_may_say_that_it_failed(tmp_path: Path) -> None:
    """No step is there, as of a job that ended then."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    add(tmp_path, 0, replace(record, ended_after_ns=60 * S, message="bucket 5 failed after 60 s"))
    (hang,) = hangs_in(tmp_path)
    assert (hang.outcome, hang.went_on) == ("bucket 5 failed after 60 s", False)


def test_a_wait_outside_of_all_hooks_went_on_when_a_later_step_is_whole(tmp_path: Path) -> None:
    """Its step is the last one before it, which was whole all the time."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    drop(tmp_path, range(4), '"kind":"hang"')
    add(tmp_path, 0, replace(record, step=11, bucket=-1))
    (hang,) = hangs_in(tmp_path)
    assert hang.end is None
    drop(tmp_path, [0], '"kind":"hang"')
    add(tmp_path, 0, replace(record, step=10, bucket=-1))
    (hang,) = hangs_in(tmp_path)
    assert hang.went_on


def test_a_hang_of_no_model_is_none_of_the_models(tmp_path: Path) -> None:
    """As at a barrier before any step; it is a hang of the run."""
    record = write_hung_job(JOB, SyntheticHang(step=12), tmp_path)
    add(tmp_path, 0, replace(record, hang=1, model="", hook="", step=0, bucket=-1))
    run = run_in(tmp_path)
    assert run.model_names == [JOB.model]
    assert {one.record.model for one in hangs(run)} == {JOB.model, ""}
