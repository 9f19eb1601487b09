"""In which runs each rule of the report speaks, and that it is silent in all others.

A sentence on the screen is a claim: a run in which it would be false stands here.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.findings import RULES
from hooktrace.records import BucketRecord, CompletedStep, ErrorRecord, Stage
from hooktrace.records.intervals import exposed_ns, union_ns
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.report.jobs import Change, as_it_is, found_in, write_changed
from tests.analysis.runs import run_in

MS = 1_000_000
QUIET = SyntheticJob(ranks=3, steps=30, bucket_bytes=(4_000_000,) * 7 + (100_000,))


def job(**changes: object) -> SyntheticJob:
    """Return the quiet job with some fields changed."""
    return dataclasses.replace(QUIET, **changes)  # type: ignore[arg-type]


def with_buckets(completed: CompletedStep, buckets: list[BucketRecord]) -> CompletedStep:
    """Return the step with other buckets, and the times that follow from them."""
    step, _ = completed
    last, done = max(b.ready_ns for b in buckets), max(b.done_ns for b in buckets)
    wire = [(s.start_ns, s.end_ns) for b in buckets for s in b.stages if s.name == "wire"]
    changed = replace(
        step, last_ready_ns=last, done_ns=done, exposed_ns=exposed_ns(last, done),
        busy_ns=union_ns((b.ready_ns, b.done_ns) for b in buckets), wire_busy_ns=union_ns(wire),
    )  # fmt: skip
    return changed, tuple(buckets)


def one_after_another(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step of a hook of two rounds of 6 ms, as PowerSGD's.

    The last call ends when all calls have, and the last bucket is the smallest.
    """
    step, buckets = completed
    free, found = buckets[0].ready_ns, []
    for bucket in buckets:
        begin = max(bucket.ready_ns, free)
        bounds = [begin + at * MS for at in (0, 1, 7, 8, 14, 15)]
        names = ("compress", "wire", "decompress", "wire", "decompress")
        stages = [
            Stage(name=name, start_ns=start, end_ns=end)  # type: ignore[arg-type]  # of these
            for name, (start, end) in zip(names, pairwise(bounds), strict=True)
        ]
        if begin > bucket.ready_ns:
            stages.insert(0, Stage(name="turn", start_ns=bucket.ready_ns, end_ns=begin))
        free = bounds[-1]
        launched = free if bucket.is_last else bucket.ready_ns + MS // 10
        found.append(
            replace(
                bucket,
                stages=tuple(stages),
                launched_ns=launched,
                done_ns=free,
                hook="powerSGD_hook",
            )
        )
    return with_buckets((replace(step, hook="powerSGD_hook"), buckets), found)


def probed(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; of every tenth hooktrace probes a bucket, for 80 ms before its hook."""
    step, buckets = completed
    if step.step % 10:
        return completed
    first, *others = buckets
    error = ErrorRecord(
        relative_l2=0.01, cosine=1.0, max_absolute=0.1, flipped_share=0.0, reference_l2=3.0
    )
    late = 80 * MS
    moved = tuple(
        replace(s, start_ns=s.start_ns + late, end_ns=s.end_ns + late) for s in first.stages
    )
    probe = Stage(name="probe", start_ns=first.ready_ns, end_ns=first.ready_ns + late)
    first = replace(
        first, stages=(probe, *moved), launched_ns=first.launched_ns + late,
        done_ns=first.done_ns + late, error=error, probed=True,
    )  # fmt: skip
    return with_buckets((replace(step, probed=True), buckets), [first, *others])


def longer(bucket: BucketRecord, more: int) -> BucketRecord:
    """Return the bucket, which takes so many ns more on the wire."""
    *before, wire, end = bucket.stages
    end = replace(end, start_ns=end.start_ns + more, end_ns=end.end_ns + more)
    stages = (*before, replace(wire, end_ns=wire.end_ns + more), end)
    return replace(bucket, stages=stages, done_ns=bucket.done_ns + more)


def stalled(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; of step 20 the last bucket takes 10 s more on the wire, on all ranks."""
    *others, last = completed[1]
    if completed[0].step != 20:
        return completed
    return with_buckets(completed, [*others, longer(last, 10_000 * MS)])


def opaque(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step of a hook of which only its calls are seen."""
    step, buckets = completed
    found = [
        replace(
            b, wire_bytes=None, bus_bytes=None,
            stages=(
                Stage(name="hook", start_ns=b.ready_ns, end_ns=b.launched_ns),
                Stage(name="pending", start_ns=b.launched_ns, end_ns=b.done_ns),
            ),
        )
        for b in buckets
    ]  # fmt: skip
    unknown = replace(step, wire_bytes=None, bus_bytes=None)
    return with_buckets((unknown, buckets), found)


def compress_in_the_last(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; the last bucket's call takes 20 ms, after all gradients are there."""
    *others, last = completed[1]
    more = 20 * MS
    first, *rest = last.stages
    rest = [replace(s, start_ns=s.start_ns + more, end_ns=s.end_ns + more) for s in rest]
    last = replace(
        last, stages=(replace(first, end_ns=first.end_ns + more), *rest),
        launched_ns=last.launched_ns + more, done_ns=last.done_ns + more,
    )  # fmt: skip
    return with_buckets(completed, [*others, last])


def one_slow_bucket(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; the last but one of the buckets takes 30 ms more on the wire than others."""
    *others, slow, last = completed[1]
    return with_buckets(completed, [*others, longer(slow, 30 * MS), last])


def erring(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; every tenth shows a large error, which took no time."""
    step, (first, *others) = completed
    error = ErrorRecord(
        relative_l2=0.5, cosine=0.9, max_absolute=0.1, flipped_share=0.0, reference_l2=3.0
    )
    if step.step % 10:
        return completed
    return replace(step, probed=True), (replace(first, error=error, probed=True), *others)


def nobody_waits(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step of a hook that communicates nothing: ranks drift apart."""
    step, buckets = completed
    found = [
        replace(
            b, wire_bytes=0, bus_bytes=None, done_ns=b.launched_ns,
            stages=(Stage(name="compress", start_ns=b.ready_ns, end_ns=b.launched_ns),),
        )
        for b in buckets
    ]  # fmt: skip
    silent = replace(step, wire_bytes=0, bus_bytes=None)
    return with_buckets((silent, buckets), found)


def test_a_hook_that_sends_nothing_hides_nothing(tmp_path: Path) -> None:
    """There is no communication that backward could hide."""
    write_changed(tmp_path, QUIET, nobody_waits)
    assert (
        found_in(tmp_path)[0].sentence == "Nothing is communicated: allreduce_hook sends nothing."
    )


def compressing_late(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; from the twentieth on the hook sends a hundredth."""
    step, buckets = completed
    if step.step < 20:
        return completed
    sent = [replace(b, wire_bytes=(b.wire_bytes or 0) // 100) for b in buckets]
    return with_buckets((replace(step, wire_bytes=(step.wire_bytes or 0) // 100), buckets), sent)


def local_by_design(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; every tenth is far from the average, as a gossiping hook's result is."""
    step, (first, *others) = erring(rank, completed)
    if first.error is None:
        return completed
    return step, (replace(first, error=replace(first.error, by_design=True)), *others)


LARGE_LAST = job(bucket_bytes=(4_000_000,) * 7 + (16_000_000,))
LATE = job(late_ms={1: 6.0})

RUNS: dict[str, tuple[SyntheticJob, Change | SyntheticHang, int]] = {
    "quiet": (QUIET, as_it_is, 3),
    "large last": (LARGE_LAST, as_it_is, 3),
    "large last, one file of three": (LARGE_LAST, as_it_is, 1),
    "large last, alone": (dataclasses.replace(LARGE_LAST, ranks=1), as_it_is, 1),
    "a single small bucket": (
        job(bucket_bytes=(1_000,), latency_ms=5.0, backward_ms=0.0),
        as_it_is,
        3,
    ),
    "small buckets": (
        job(latency_ms=2.0, backward_ms=10.0, bucket_bytes=(50_000, 200_000, 400_000) * 10),
        as_it_is,
        3,
    ),
    "queue": (job(backward_ms=10.0, bucket_bytes=(4_000_000,) * 10), as_it_is, 3),
    "one after another": (job(wire_share=0.1), one_after_another, 3),
    "one after another, one file of three": (job(wire_share=0.1), one_after_another, 1),
    "codec": (
        job(hook="fp16", wire_share=0.5, codec_ms=3.0, bucket_bytes=(4_000_000,) * 8),
        as_it_is,
        3,
    ),
    "compress in the last": (job(hook="fp16", wire_share=0.5), compress_in_the_last, 3),
    "late": (LATE, as_it_is, 3),
    "late, clocks unknown": (job(late_ms={1: 6.0}, clocks=False), as_it_is, 3),
    "late, one file of three": (LATE, as_it_is, 1),
    "late in the last bucket": (job(late_ms={1: 6.0}, late_from=7, clocks=False), as_it_is, 3),
    "one slow bucket": (QUIET, one_slow_bucket, 3),
    "slow collectives": (job(slow_every=7, bytes_per_second=5e7), as_it_is, 3),
    "probed": (QUIET, probed, 3),
    "stalled": (QUIET, stalled, 3),
    "stalled, one file of three": (QUIET, stalled, 1),
    "opaque": (QUIET, opaque, 3),
    "late, and nobody waits": (LATE, nobody_waits, 3),
    "compresses nothing": (job(hook="powerSGD_hook", codec_ms=1.0), as_it_is, 3),
    "compresses late": (job(hook="powerSGD_hook", codec_ms=1.0), compressing_late, 3),
    "steps an optimizer": (
        job(hook="hook_then_optimizer(fp16)", wire_share=0.5, codec_ms=3.0),
        as_it_is,
        3,
    ),
    "large error": (QUIET, erring, 3),
    "local by design": (QUIET, local_by_design, 3),
    "few steps": (job(steps=4), stalled, 3),
    "hung": (QUIET, SyntheticHang(step=20), 3),
    "hung for a while": (QUIET, SyntheticHang(step=20, went_on_after_s=42), 3),
    "hung between two steps": (
        job(ranks=2),
        SyntheticHang(step=20, bucket=0, rank=1, went_on_after_s=42),
        2,
    ),
}
"""Each run: its job, what is changed in each step, and of how many ranks there are files."""


SPEAKS: dict[str, set[str]] = {
    "communication_is_exposed": set(RUNS),
    "last_bucket_is_large": {"large last"},
    "small_buckets": {"small buckets"},
    "workers_are_busy": {"queue", "small buckets", "slow collectives"},
    "bucket_is_slow": {"one slow bucket"},
    "hook_holds_the_thread": {
        "codec",
        "compresses nothing",
        "compresses late",
        "steps an optimizer",
    },
    "saves_less_than_it_costs": {"codec", "compress in the last"},
    "hook_sends_what_it_gets": {
        "large last",
        "queue",
        "one slow bucket",
        "slow collectives",
        "compresses nothing",
    },
    "ranks_wait": {"late", "late, clocks unknown", "late in the last bucket"},
    "slow_steps_cost": {"slow collectives"},
    "steps_stalled": {"stalled", "stalled, one file of three"},
    "error_is_large": {"large error"},
    "ranks_hung": {"hung", "hung for a while", "hung between two steps"},
}
"""The runs in which each rule speaks; in all others of ``RUNS`` it has to be silent."""


def speaking_rules(run: str, folder: Path) -> set[str]:
    """Return the rules that say something of a run."""
    made, change, files = RUNS[run]
    if isinstance(change, SyntheticHang):
        write_hung_job(made, change, folder)
    else:
        write_changed(folder, made, change, files=files)
    (model,) = build_report(run_in(folder)).models
    return {finding.rule for finding in model.findings}


@pytest.mark.parametrize("run", RUNS)
def test_rules_speak_where_they_are_true_and_nowhere_else(run: str, tmp_path: Path) -> None:
    """What is said of each run, rule by rule."""
    assert speaking_rules(run, tmp_path) == {rule for rule, runs in SPEAKS.items() if run in runs}


def test_each_rule_has_its_runs() -> None:
    """It speaks in one at least, and is silent in most; how much is exposed is always said."""
    assert [rule.__name__ for rule in RULES] == list(SPEAKS)
    for rule, runs in SPEAKS.items():
        assert runs
        assert rule == "communication_is_exposed" or len(runs) < len(RUNS) / 2
