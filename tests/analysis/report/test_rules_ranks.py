"""What is said of jobs in which one rank, or one step, keeps the others waiting."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report import rules_ranks
from hooktrace.analysis.report.facts import SlowSteps
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import simulate
from tests.analysis.report.jobs import (
    HIDDEN,
    MS,
    found,
    found_in,
    gain_ms,
    one,
    report_of,
    write_changed,
)
from tests.analysis.run.files import Completed, moved, run_of, steps_of, text_of, write_ranks


@pytest.mark.parametrize("since", [0, 4])
def test_a_late_rank(tmp_path: Path, since: int) -> None:
    """The one, its host, the bucket, the gain, and where to look."""
    job = dataclasses.replace(HIDDEN, late_ms={1: 6.0}, late_from=since)
    finding = one(found(job, tmp_path), "Rank 1 (host-0) is late")
    assert gain_ms(finding) == pytest.approx(6, rel=0.1)
    where = "data loading" if since == 0 else "before bucket 4, layers.4.weight"
    assert where in finding.remedy


def test_waiting_is_seen_without_clocks(tmp_path: Path) -> None:
    """By durations alone: no rank is named."""
    job = dataclasses.replace(HIDDEN, late_ms={1: 6.0}, clocks=False)
    all_found = found(job, tmp_path)
    finding = one(all_found, "Ranks wait for each other")
    assert gain_ms(finding) == pytest.approx(6, rel=0.1)
    assert "the clocks of all ranks were never known at once" in finding.evidence[1]
    assert not [f for f in all_found if "is late" in f.sentence]
    missing = report_of(tmp_path).missing
    assert any("ranks 1, 2: the clock was not measured" in line for line in missing)


def test_slow_steps(tmp_path: Path) -> None:
    """One step of 20 takes 100 ms more, outside of communication."""

    def late(host_ns: int) -> int:
        return host_ns + 100 * MS

    steps: list[Completed] = steps_of(20)
    steps[11:] = [moved(step, late) for step in steps[11:]]
    record, buckets = steps[11]
    steps[11] = replace(record, previous_period_ns=110 * MS), buckets
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    finding = one(found_in(tmp_path), "1 of 19 steps takes 1.5 times the median or more")
    assert gain_ms(finding) == pytest.approx(100 / 19)
    assert finding.sentence.endswith("mostly outside of backward and communication.")
    assert finding.evidence[0].endswith("step 10")


def pausing(step: int) -> bool:
    return step in {10, 20}


@pytest.mark.parametrize(("ranks", "without_file"), [(4, 3), (2, 0)])
def test_slow_steps_that_wait_for_one_rank(ranks: int, without_file: int, tmp_path: Path) -> None:
    """Rank 0 writes a checkpoint for 500 ms after two steps; the others wait in the next ones.

    The long period is a step earlier on rank 0 than on the others: of two ranks, too, two steps are
    slow, and not the halves of four.
    """

    def late(rank: int, completed: Completed) -> Completed:
        step, buckets = completed
        pause = 500 * MS
        if rank == 0 and pausing(step.step - 1):
            ready = [replace(b, ready_ns=b.ready_ns + pause) for b in buckets]
            ready = [replace(b, stages=()) for b in ready]
            done = max(b.done_ns for b in ready) + pause
            ready = [replace(b, launched_ns=b.ready_ns, done_ns=done) for b in ready]
            period = (step.previous_period_ns or 0) + pause
            first, last = ready[0].ready_ns, ready[-1].ready_ns
            return replace(
                step, previous_period_ns=period, first_ready_ns=first, last_ready_ns=last,
                done_ns=done, busy_ns=done - first, exposed_ns=done - last,
            ), tuple(ready)  # fmt: skip
        if rank and pausing(step.step - 1):
            *others, last = buckets
            last = replace(last, done_ns=last.done_ns + pause)
            done, exposed = step.done_ns + pause, (step.exposed_ns or 0) + pause
            return replace(step, done_ns=done, exposed_ns=exposed), (*others, last)
        if rank and pausing(step.step - 2):
            return replace(step, previous_period_ns=(step.previous_period_ns or 0) + pause), buckets
        return completed

    write_changed(tmp_path, dataclasses.replace(HIDDEN, ranks=ranks), late)
    finding = one(found_in(tmp_path), "2 of 29 steps take 1.5 times the median or more")
    assert finding.sentence.endswith("mostly waiting for rank 0.")
    assert finding.rank == 0
    assert gain_ms(finding) == pytest.approx(2 * 500 / 29, rel=0.02)
    assert "which bucket" not in finding.remedy
    assert finding.evidence[-1].startswith(
        "rank 0 has its last bucket ready after all others, by up"
    )
    record_path(tmp_path, without_file).unlink()
    finding = one(found_in(tmp_path), "2 of 29 steps take 1.5 times the median or more")
    assert finding.rank is None  # whoever has no file may have come later still
    assert "without a file" in finding.remedy


@pytest.mark.parametrize(
    ("exposed", "backward", "said"),
    [
        (0.49, 0.41, "the largest part in communication"),
        (None, None, "in what is not known"),
        (None, 0.4, "in what is not known"),
        (0.6, None, "mostly in communication"),
        (0.2, 0.45, "the largest part in backward"),
        (0.3, 0.3, "the largest part outside of backward and communication"),
        (0.7, 0.6, "mostly in communication"),
        (0.1, 0.1, "mostly outside of backward and communication"),
    ],
)
def test_the_largest_part_of_slow_steps_is_named(
    exposed: float | None, backward: float | None, said: str
) -> None:
    """What neither is in communication nor in backward may be the least of all."""
    slow = SlowSteps(
        steps=(3,), periods=30, slowest_ns=9e7, excess_ns=1e6,
        exposed_excess_ns=None if exposed is None else exposed * 1e6,
        backward_excess_ns=None if backward is None else backward * 1e6,
    )  # fmt: skip
    model: Any = SimpleNamespace(
        slow=slow, is_whole=True, is_sharded=False, beside=(), hook="fp16_compress_hook"
    )
    (finding,) = rules_ranks.slow_steps_cost(model, None)
    assert finding.sentence.endswith(f"1.00 ms a step, {said}.")
    assert ("compress stage" in finding.remedy) == ("in backward" in said)
    assert ("(hooktrace export)" in finding.remedy) == ("in communication" in said)
    model.hook = "ddp_allreduce"  # DDP's own, which compresses nothing
    (finding,) = rules_ranks.slow_steps_cost(model, None)
    assert "compress" not in finding.remedy


def test_slow_steps_in_which_ranks_take_turns(tmp_path: Path) -> None:
    """Each is late in one of the two: none is named."""
    job = dataclasses.replace(HIDDEN, ranks=4, steps=30)
    jobs = [dataclasses.replace(job, late_ms={rank: 500.0}, late_every=20) for rank in (0, 1)]

    def unlike(rank: int, completed: Completed) -> Completed:
        return completed if completed[0].step < 15 else others[rank][completed[0].step]

    others = [
        {step.number: step.completed(rank) for step in simulate(jobs[1])} for rank in range(4)
    ]
    write_changed(tmp_path, jobs[0], unlike)
    finding = one(found_in(tmp_path), "times the median or more")
    assert finding.rank is None
    assert finding.sentence.endswith("mostly in communication.")


def test_a_rank_that_is_late_by_its_hook(tmp_path: Path) -> None:
    """Its call for bucket 3 takes 6 ms more: it is not what it computes before bucket 4."""

    def held(rank: int, completed: Completed) -> Completed:
        step, buckets = completed
        slow = replace(buckets[3], launched_ns=buckets[3].launched_ns + 6 * MS)
        return completed if rank != 1 else (step, (*buckets[:3], slow, *buckets[4:]))

    write_changed(tmp_path, dataclasses.replace(HIDDEN, late_ms={1: 6.0}, late_from=4), held)
    finding = one(found_in(tmp_path), "Rank 1 (host-0) is late")
    assert finding.evidence[0].endswith("its hook's calls before that take 6.00 ms longer")
    assert "computes" not in finding.remedy
    assert "hook" in finding.remedy


def test_a_rank_whose_last_call_takes_longer(tmp_path: Path) -> None:
    """No rank has its bucket ready later, and all wait for the one that compresses for 6 ms."""

    def held(rank: int, completed: Completed) -> Completed:
        step, (*others, last) = completed
        begun = 6 * MS if rank == 1 else 0
        compress, *before, wire, end = last.stages
        compress = replace(compress, end_ns=compress.end_ns + begun)
        end = replace(end, start_ns=end.start_ns + 6 * MS, end_ns=end.end_ns + 6 * MS)
        wire = replace(wire, start_ns=wire.start_ns + begun, end_ns=wire.end_ns + 6 * MS)
        last = replace(
            last, stages=(compress, *before, wire, end), done_ns=last.done_ns + 6 * MS,
            launched_ns=last.launched_ns + begun,
        )  # fmt: skip
        exposed = (step.exposed_ns or 0) + 6 * MS
        return replace(step, done_ns=last.done_ns, exposed_ns=exposed), (*others, last)

    write_changed(tmp_path, HIDDEN, held)
    finding = one(found_in(tmp_path), "Ranks wait for each other")
    assert finding.rank == 1
    assert finding.evidence[1] == "rank 1 compresses it for 6.00 ms longer than any other"


def test_shares_of_two_ranks_leave_no_rest() -> None:
    """Medians over ranks may come to more than all of it."""
    assert rules_ranks.rest_of(0.55 + 0.52) == "each at its median rank, so that they overlap"
    assert rules_ranks.rest_of(0.9) == "the rest outside of both"
