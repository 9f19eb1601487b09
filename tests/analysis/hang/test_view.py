"""The rows that explain a hang: nothing in them that the files do not say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.hang.view import (
    Behind,
    LastStep,
    RankEnd,
    behind,
    hang_rows,
    missing_rows,
    rank_ends,
)
from hooktrace.analysis.run import Hang
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import run_in

WALL_NS = 1_700_000_000_000_000_000
RECORD = SyntheticHang(step=120).record(SyntheticJob(), 5_000_000_000)
HANG = Hang(
    record=RECORD, start=RECORD.since_ns, end=None, last_word=None, failed=False, went_on=False,
    ranks=(0, 1, 3),
)  # fmt: skip
OPEN, CLOSED = (RankEnd(rank=0, host="host-0", last=(), closed=x) for x in (False, True))


def rows(hang: Hang, *ends: RankEnd) -> dict[str, str]:
    """Return the rows below the sentence by their name, 95.4 s after the hang began."""
    return dict(hang_rows(hang, ends, RECORD.since_wall_ns + 95_400_000_000))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            {"kind": "uneven_inputs", "unit": "blocks.2 all-gather (forward)"},
            {
                "where": "synthetic, allreduce_hook, step 120, blocks.2 all-gather (forward)",
                "fix": "give all ranks as many batches",
            },
        ),
        (
            # Nobody is named, and a kind of a newer hooktrace has no fix here.
            {
                "kind": "solar_flare", "model": "", "hook": "", "ranks": (), "waiting": (),
                "bucket": -1, "stacks": (),
            },
            {"waits": "nobody known", "for": "not known", "where": "step 120", "fix": None},
        ),
        ({"since_wall_ns": 1 << 62}, {"since": "2116-02-20 23:53:38.427 UTC"}),  # a damaged file's
        ({"since_wall_ns": -(1 << 62)}, {"since": "1823-11-12 00:06:21.572 UTC"}),
    ],
)  # fmt: skip
def test_what_is_known_is_said(record: dict[str, Any], said: dict[str, str | None]) -> None:
    found = rows(dataclasses.replace(HANG, record=replace(RECORD, **record)))
    assert {name: found.get(name) for name in said} == said


def test_a_hang_that_may_last_is_told_with_how_long_it_has_by_now() -> None:
    """The sentence still says for how long it had when it was told; not of one that is over."""
    assert "has waited 31 s" in HANG.record.sentence
    assert rows(HANG, OPEN)["by now"] == "95 s, unless its processes were killed meanwhile"
    over = dataclasses.replace(HANG, end=HANG.start + 1)
    for hang, end in ((HANG, CLOSED), (over, OPEN), (HANG, replace(OPEN, rank=7))):
        assert "by now" not in rows(hang, end)


def test_a_rank_whose_file_lacks_the_record_is_named() -> None:
    assert rows(HANG, OPEN, replace(OPEN, rank=2))["rank 2"] == (
        "its file does not have it; last whole step: no whole step; the file has no end: the "
        "process was killed, or it still runs"
    )


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


def test_the_last_whole_step_counts(tmp_path: Path) -> None:
    """Not one that was cut off; of each rank with its moment, and whether the file has its end."""
    steps = steps_of(5)
    cut = [*steps[:4], (replace(steps[4][0], complete=False), steps[4][1])]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps), 1: text_of(run_of(1), cut, ended=False)})
    ends = rank_ends(run_in(tmp_path))
    at = [WALL_NS + step.done_ns - 1_000_000_000 for step, _ in steps]
    assert [(e.rank, e.host, e.last, e.closed) for e in ends] == [
        (0, "host-a", (LastStep("net", 4, at[4]),), True),
        (1, "host-a", (LastStep("net", 3, at[3]),), False),
    ]
    assert behind(ends) == [Behind(model="net", ranks=(1,), step=3, furthest=4)]


def test_a_rank_without_a_step_is_behind(tmp_path: Path) -> None:
    """And of ranks that came as far as each other none is."""
    texts = {rank: text_of(run_of(rank), steps_of(3)) for rank in range(2)}
    write_ranks(tmp_path, texts)
    assert behind(rank_ends(run_in(tmp_path))) == []
    write_ranks(tmp_path, {1: text_of(run_of(1), [], ended=False)})
    found = behind(rank_ends(run_in(tmp_path)))
    assert found == [Behind(model="net", ranks=(1,), step=None, furthest=2)]
