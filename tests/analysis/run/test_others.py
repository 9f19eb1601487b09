"""How much of a run's communication is none of DDP's; the sentences that the report makes of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report.head import run_lines, run_source
from hooktrace.analysis.run import Run, models_beside, other_traffic
from hooktrace.records import OtherCollective, OtherCollectives
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.run.files import add, drop
from tests.analysis.runs import job_run, run_in

US = 1000
IN_ONE = "1 step was watched, each until the next one's first bucket"
JOB = SyntheticJob(ranks=2, steps=6)


def collective(start: int, took: int | None, **fields: Any) -> OtherCollective:
    """Return one that begins after so many us, and takes so many."""
    given = {"name": "all_reduce", "wire_bytes": 4000, "where": "train.py:7", **fields}
    done = None if took is None else (start + took) * US
    return OtherCollective(issued_ns=start * US, done_ns=done, thread="MainThread", **given)


def sampled(run: Run, rank: int, *collectives: OtherCollective, **fields: Any) -> OtherCollectives:
    """Return a record of step 3 of one rank, with collectives after its first bucket."""
    steps = run.tracks[rank].steps
    begin, end = (int(steps.first_ready[steps.step == step][0]) for step in (3, 4))
    placed = tuple(
        replace(
            one,
            issued_ns=begin + one.issued_ns,
            done_ns=None if one.done_ns is None else begin + one.done_ns,
        )
        for one in collectives
    )
    return OtherCollectives(
        model="net", step=3, time_ns=begin, until_ns=end, collectives=placed, **fields
    )


def run_with(folder: Path, *collectives: OtherCollective, **fields: Any) -> Run:
    """Return a job of which both ranks have the same collectives in step 3."""
    write_job(JOB, folder)
    run = run_in(folder)
    for rank in range(2):
        add(folder, rank, sampled(run, rank, *collectives, **fields))
    return run_in(folder)


def sentence(run: Run) -> str | None:
    return dict(run_lines(run_source(run, None))).get("other collectives")


def test_what_two_ranks_add_up_to(tmp_path: Path) -> None:
    """Means a step of a rank; what overlaps is in flight once; DDP's own is on DDP's side."""
    run = run_with(
        tmp_path,
        collective(10, 400),
        collective(100, 600, name="barrier", wire_bytes=0, where="train.py:9"),
        collective(900, 100, name="broadcast", wire_bytes=500, of_ddp=True),
        ddp_bytes=500,
        unseen_groups=1,
    )
    found = other_traffic(run)
    assert found is not None
    buckets = sum(JOB.wire_bytes(index) for index in range(len(JOB.bucket_bytes)))
    assert (found.steps, found.count, found.wire_bytes) == (1, 2, 4000)
    assert found.ddp_bytes == buckets + 500
    assert found.share == 4000 / (buckets + 4500)
    assert (found.in_flight_ns, found.longest) == (690 * US, "barrier at train.py:9")
    text = sentence(run)
    assert text is not None
    assert text.startswith("2 a watched step: 4 kB, ")
    assert text.endswith(
        " of what they and traced models send, in flight for 0.69 ms; longest: barrier at "
        f"train.py:9 ({IN_ONE}; not seen: 1 other process group)"
    )


def test_what_is_not_known(tmp_path: Path) -> None:
    """Ends on a device, and sizes of sparse tensors; each leaves its own number unknown."""
    run = run_with(tmp_path, collective(10, None, wire_bytes=None))
    found = other_traffic(run)
    assert found is not None
    assert (found.count, found.wire_bytes, found.in_flight_ns, found.share) == (1, None, None, None)
    assert sentence(run) == (
        f"1 a watched step; their share of the payload is not known ({IN_ONE})"
    )


def test_more_than_are_listed_leave_the_time_unknown(tmp_path: Path) -> None:
    found = other_traffic(run_with(tmp_path, collective(10, 5), more=2, more_bytes=10))
    assert found is not None
    assert (found.count, found.wire_bytes, found.in_flight_ns) == (3, 4010, None)


def test_a_job_without_any(tmp_path: Path) -> None:
    """It is known of sampled steps that there is none."""
    assert sentence(run_with(tmp_path)) == f"none ({IN_ONE})"


@pytest.mark.parametrize(
    ("version", "says"), [("2.13.0", None), ("2.14.1", "not known: no step was watched")]
)
def test_where_nothing_was_seen(version: str, says: str | None, tmp_path: Path) -> None:
    """Of a torch that cannot tell there is no sentence."""
    write_job(JOB, tmp_path)
    for path in tmp_path.rglob("*.jsonl"):
        path.write_text(path.read_text().replace("2.13.0", version))
    found = sentence(run_in(tmp_path))
    assert found is None if says is None else found is not None and found.startswith(says)


def test_a_step_without_its_line(tmp_path: Path) -> None:
    """Without DDP's bytes there is no share."""
    run_with(tmp_path, collective(10, 5))
    drop(tmp_path, [0, 1], '"kind":"step"')
    found = other_traffic(run_in(tmp_path))
    assert found is not None
    assert (found.wire_bytes, found.ddp_bytes, found.share) == (4000, None, None)


PAIR = SyntheticJob(ranks=2, steps=20)


def both(folder: Path, other: SyntheticJob) -> Run:
    """Return a run of a job and another one in the same processes, at the same time."""
    write_job(PAIR, folder)
    write_job(other, folder / "other")
    for rank in range(PAIR.ranks):
        lines = record_path(folder / "other", rank).read_text().splitlines(keepends=True)
        own = [line for line in lines if f'"model":"{other.model}"' in line]
        path = record_path(folder, rank)
        *before, end = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*before, *own, end]))
    return run_in(folder)


def test_two_models_that_take_turns(tmp_path: Path) -> None:
    """Each is in the other's steps; and alone, none is."""
    run = both(tmp_path, dataclasses.replace(PAIR, model="critic"))
    assert models_beside(run, PAIR.model) == ("critic",)
    assert models_beside(run, "critic") == (PAIR.model,)
    assert models_beside(job_run(PAIR, tmp_path / "alone"), PAIR.model) == ()


def test_a_model_that_communicates_in_few_of_the_steps_is_not_in_them(tmp_path: Path) -> None:
    """One that is trained for a moment at the beginning."""
    run = both(tmp_path, dataclasses.replace(PAIR, model="critic", steps=4))
    assert models_beside(run, PAIR.model) == ()
