"""The rows that explain a hang: nothing in them that the files do not say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.hang.ends import RankEnd
from hooktrace.analysis.hang.view import hang_rows, missing_rows
from hooktrace.analysis.run import Hang
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang
from tests.analysis.runs import run_in

RECORD = SyntheticHang(step=120).record(SyntheticJob(), 5_000_000_000)
HANG = Hang(
    record=RECORD,
    start=RECORD.since_ns,
    end=None,
    last_word=None,
    failed=False,
    went_on=False,
    ranks=(0, 1, 2, 3),
)
NOW = RECORD.since_wall_ns + 95_400_000_000
"""Whatever the sentence says: it was made when the hang was told."""


def rows(hang: Hang) -> dict[str, str]:
    """Return the rows below the sentence by their name."""
    return dict(hang_rows(hang, [], NOW))


def end_of(rank: int, *, closed: bool) -> RankEnd:
    return RankEnd(rank=rank, host="host-0", last=(), closed=closed)


def test_a_hang_that_may_last_is_told_with_how_long_it_has_by_now() -> None:
    """The sentence still says for how long it had when it was told."""
    assert HANG.record.sentence == RECORD.message
    assert "has waited 31 s" in HANG.record.sentence
    first, *_ = hang_rows(HANG, [end_of(0, closed=False)], NOW)
    assert first == ("by now", "95 s, unless its processes were killed meanwhile")


def test_of_a_hang_that_is_over_or_whose_files_were_closed_no_time_goes_on() -> None:
    """Nor of one that others' files do not have."""
    over = dataclasses.replace(HANG, end=HANG.start + 1)
    for hang, end in (
        (HANG, end_of(0, closed=True)),
        (over, end_of(0, closed=False)),
        (HANG, end_of(7, closed=False)),
    ):
        assert "by now" not in dict(hang_rows(hang, [end], NOW))


def test_a_unit_is_told_by_its_name() -> None:
    name = "blocks.2 all-gather (forward)"
    record = replace(RECORD, kind="uneven_inputs", unit=name)
    found = rows(dataclasses.replace(HANG, record=record))
    assert found["where"] == f"synthetic, allreduce_hook, step 120, {name}"
    assert found["fix"] == "give all ranks as many batches"


def test_what_is_not_known_is_said() -> None:
    """Nobody is named, and a kind of a newer hooktrace has no remedy here."""
    record = replace(
        RECORD, kind="solar_flare", model="", hook="", ranks=(), waiting=(), bucket=-1, stacks=()
    )
    hang = dataclasses.replace(HANG, record=record, ranks=(3,))
    found = rows(hang)
    assert "fix" not in found
    assert (found["waits"], found["for"]) == ("nobody known", "not known")
    assert found["where"] == "step 120"
    assert found["recorded"] == "in the file of rank 3"


def test_a_rank_whose_file_lacks_the_record_is_named() -> None:
    end = RankEnd(rank=2, host=None, last=(), closed=False)
    found = dict(hang_rows(dataclasses.replace(HANG, ranks=(0, 1, 3)), [end], NOW))
    assert found["rank 2"] == (
        "its file does not have it; last whole step: no whole step; the file has no end: the "
        "process was killed, or it still runs"
    )


def test_times_of_a_damaged_file_do_no_harm() -> None:
    record = replace(RECORD, since_wall_ns=1 << 62)
    assert rows(dataclasses.replace(HANG, record=record))["since"].startswith("2116-")
    record = replace(RECORD, since_wall_ns=-(1 << 62))
    assert rows(dataclasses.replace(HANG, record=record))["since"].startswith("1823-")


def test_ranks_without_a_file_of_the_run_are_named(tmp_path: Path) -> None:
    """Apart from those whose file is of an earlier run."""
    job = SyntheticJob(ranks=5, steps=3)
    write_job(job, tmp_path)
    for rank in (2, 4):
        record_path(tmp_path, rank).unlink()
    older = record_path(tmp_path, 3)
    older.write_text(older.read_text().replace('"run_id":"synthetic"', '"run_id":"older"'))
    assert [*missing_rows(run_in(tmp_path))] == [
        ("no file", "of ranks 2, 4; the run has 5 ranks"),
        ("left out", "the file of rank 3, of an earlier run"),
    ]
