"""Made-up jobs of which one knows what they are like: what tests of all views of a run are of.

A sentence on the screen is a claim, and a number too: a run in which it would be false stands here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hooktrace.exporters.retention import Retention
from hooktrace.records import BucketRecord, CompletedStep, ErrorRecord, Stage, StageName
from hooktrace.records.intervals import exposed_ns, union_ns
from hooktrace.testing.synthetic import SyntheticJob, rank_file, simulate, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.run.files import (
    Change,
    as_it_is,
    collective,
    timed_by_device,
    write_changed,
    write_kept,
    write_others,
    write_ranks,
)
from tests.analysis.sharded_jobs import coded, hidden, of_two_kinds, off, sharded

Writes = Callable[[Path], object]
"""Writes the files of a job to a folder."""

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
        communication_ns=union_ns((b.ready_ns, b.done_ns) for b in buckets),
        wire_in_flight_ns=union_ns(wire),
    )  # fmt: skip
    return changed, tuple(buckets)


def bounded(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step as of a model without a hook: the first are timed, and every tenth."""
    step, buckets = completed
    if step.step < 20 or step.step % 10 == 0:
        return completed
    buckets = tuple(replace(one, bounded=True, stages=()) for one in buckets)
    return replace(step, communication_ns=None, wire_in_flight_ns=None), buckets


def one_after_another(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step of a hook of two rounds of 6 ms, as PowerSGD's.

    The last call ends when all calls have, and the last bucket is the smallest.
    """
    step, buckets = completed
    free, found = buckets[0].ready_ns, []
    names: tuple[StageName, ...] = ("compress", "wire", "decompress", "wire", "decompress")
    for bucket in buckets:
        ready, begin = bucket.ready_ns, max(bucket.ready_ns, free)
        bounds = [begin + at * MS for at in (0, 1, 7, 8, 14, 15)]
        spans = [*zip(names, pairwise(bounds), strict=True)]
        if begin > ready:
            spans.insert(0, ("serialization_wait", (ready, begin)))
        stages = tuple(Stage(name=name, start_ns=a, end_ns=b) for name, (a, b) in spans)
        free = bounds[-1]
        launched = free if bucket.is_last else ready + MS // 10
        found.append(
            replace(bucket, stages=stages, launched_ns=launched, done_ns=free, hook="powerSGD_hook")
        )
    return with_buckets((replace(step, hook="powerSGD_hook"), buckets), found)


def held(bucket: BucketRecord, ns: int, name: StageName) -> BucketRecord:
    """Return the bucket, whose hook does something else first, in a stage of its own."""
    stages = (replace(s, start_ns=s.start_ns + ns, end_ns=s.end_ns + ns) for s in bucket.stages)
    first = Stage(name=name, start_ns=bucket.ready_ns, end_ns=bucket.ready_ns + ns)
    launched, done = bucket.launched_ns + ns, bucket.done_ns + ns
    return replace(bucket, stages=(first, *stages), launched_ns=launched, done_ns=done)


def checked(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; of every tenth hooktrace probes a bucket, for 80 ms before its hook."""
    step, (first, *others) = with_error(relative_l2=0.01, cosine=1.0)(rank, completed)
    if step.step % 10:
        return completed
    return with_buckets((step, completed[1]), [held(first, 80 * MS, "check"), *others])


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


def plain(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step of a hook of which only its calls are seen."""
    step, buckets = completed
    found = [
        replace(
            b, wire_bytes=None, bus_bytes=None,
            stages=(
                Stage(name="hook", start_ns=b.ready_ns, end_ns=b.launched_ns),
                Stage(name="future_wait", start_ns=b.launched_ns, end_ns=b.done_ns),
            ),
        )
        for b in buckets
    ]  # fmt: skip
    unknown = replace(step, wire_bytes=None, bus_bytes=None)
    return with_buckets((unknown, buckets), found)


def compress_in_the_last(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; the last bucket's call takes 20 ms, after all gradients are there."""
    *others, last = completed[1]
    return with_buckets(completed, [*others, held(last, 20 * MS, "compress")])


def one_slow_bucket(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; the last but one of the buckets takes 30 ms more on the wire than others."""
    *others, slow, last = completed[1]
    return with_buckets(completed, [*others, longer(slow, 30 * MS), last])


def with_error(**fields: Any) -> Change:
    """Return the change of a step; a probe of every tenth shows an error, and took no time."""
    usual = {"cosine": 0.9, "max_absolute": 0.1, "flipped_share": 0.0, "reference_l2": 3.0}
    error = ErrorRecord(**{"relative_l2": 0.5} | usual | fields)

    def change(rank: int, completed: CompletedStep) -> CompletedStep:
        step, (first, *others) = completed
        if step.step % 10:
            return completed
        return replace(step, checked=True), (replace(first, error=error, checked=True), *others)

    return change


erring = with_error()


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


def sending_less(after: int, part: int = 50) -> Change:
    """Return the change of a step, which sends a part, as a fiftieth, after so many steps."""

    def change(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        if step.step <= after:
            return completed
        less = tuple(replace(b, wire_bytes=(b.wire_bytes or 0) // part) for b in buckets)
        return replace(step, wire_bytes=(step.wire_bytes or 0) // part), less

    return change


def local_by_design(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; every tenth is far from the average, as a gossiping hook's result is."""
    step, (first, *others) = erring(rank, completed)
    if first.error is None:
        return completed
    return step, (replace(first, error=replace(first.error, by_design=True)), *others)


LARGE_LAST = job(bucket_bytes=(4_000_000,) * 7 + (16_000_000,))
LATE = job(late_ms={1: 6.0})


def of(base: SyntheticJob, change: Change = as_it_is, files: int | None = None) -> Writes:
    """Return what writes the files of a job's first ranks, each of whose steps is changed."""
    return lambda folder: write_changed(folder, base, change, files=files)


def hung(base: SyntheticJob, hang: SyntheticHang) -> Writes:
    return lambda folder: write_hung_job(base, hang, folder)


SMALL = SyntheticJob(ranks=3, steps=24)
LATE_SMALL = dataclasses.replace(SMALL, late_ms={2: 6.0})


def small(**changes: Any) -> Writes:
    """Return what writes the small job with some fields changed."""
    return lambda folder: write_job(dataclasses.replace(SMALL, **changes), folder)


def rebuilt(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step, which has other buckets from the tenth on; every fourth is checked."""
    step, buckets = completed
    rebuild = 1 if step.step < 10 else 2
    changed = replace(step, rebuild=rebuild, checked=step.step % 4 == 0)
    return changed, tuple(replace(b, rebuild=rebuild) for b in buckets)


def incomplete(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; rank 1 lost a bucket of two of them, in one it is lost on all ranks."""
    step, buckets = completed
    if step.step == 20 or (step.step in (5, 9) and rank == 1):
        return replace(step, complete=False, bucket_count=7), buckets[:-1]
    return completed


def joined(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; rank 0 has no data from the sixteenth on."""
    step, buckets = completed
    join_dummy = rank == 0 and step.step > 15
    return replace(step, join_dummy=join_dummy), tuple(
        replace(b, join_dummy=join_dummy) for b in buckets
    )


def warming_up(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; the first two warm up, and there is a pause of 5 s before the twelfth."""
    step, buckets = completed
    warmup = step.step < 3
    if step.step == 12:
        step = replace(step, previous_period_ns=5_000_000_000)
    return replace(step, warmup=warmup), tuple(replace(b, warmup=warmup) for b in buckets)


def two_models(folder: Path, start_ns: int = 60_000_000) -> None:
    """As a GAN's: rank 2 is late in the backward pass of one, which starts then."""
    of_both = [dataclasses.replace(SMALL, model="a", start_ns=start_ns, late_ms={2: 6.0}),
               dataclasses.replace(SMALL, model="b", late_ms={0: 0.0})]  # fmt: skip
    for rank in range(SMALL.ranks):
        steps = [now.completed(rank) for one in of_both for now in simulate(one)]
        records = [SMALL.run(rank), *(one.layout() for one in of_both), *SMALL.clock_records(rank)]
        write_ranks(folder, {rank: rank_file(records, steps).decode()})


BY_NUMBER = Retention(first_steps=0, window_steps=10, window_every=30, extra_share=1.0)
"""Keeps each third step by its number, and all slow ones: more than half of what it keeps."""


def kept(base: SyntheticJob, retention: Retention, change: Change = as_it_is) -> Writes:
    """Return what writes a job whose files have the buckets of few steps."""
    return lambda folder: write_kept(folder, base, retention, change)


JOBS: dict[str, Writes] = {
    "quiet": of(QUIET),
    "large last": of(LARGE_LAST),
    "large last, one file of three": of(LARGE_LAST, files=1),
    "large last, alone": of(dataclasses.replace(LARGE_LAST, ranks=1), files=1),
    "a single small bucket": of(job(bucket_bytes=(1_000,), latency_ms=5.0, backward_ms=0.0)),
    "small buckets":
        of(job(latency_ms=2.0, backward_ms=10.0, bucket_bytes=(50_000, 200_000, 400_000) * 10)),
    "queue": of(job(backward_ms=10.0, bucket_bytes=(4_000_000,) * 10)),
    "one after another": of(job(wire_share=0.1), one_after_another),
    "one after another, one file of three": of(job(wire_share=0.1), one_after_another, 1),
    "codec": of(job(hook="fp16", wire_share=0.5, codec_ms=3.0, bucket_bytes=(4_000_000,) * 8)),
    "compress in the last": of(job(hook="fp16", wire_share=0.5), compress_in_the_last),
    "late": of(LATE),
    "late, clocks unknown": of(job(late_ms={1: 6.0}, clocks=False)),
    "late, one file of three": of(LATE, files=1),
    "late in the last bucket": of(job(late_ms={1: 6.0}, late_from=7, clocks=False)),
    "one slow bucket": of(QUIET, one_slow_bucket),
    "slow collectives": of(job(slow_every=7, bytes_per_second=5e7)),
    "checked": of(QUIET, checked),
    "stalled": of(QUIET, stalled),
    "stalled, one file of three": of(QUIET, stalled, 1),
    "plain": of(QUIET, plain),
    "late, and nobody waits": of(LATE, nobody_waits),
    "compresses nothing": of(job(hook="powerSGD_hook", codec_ms=1.0)),
    "compresses late": of(job(hook="powerSGD_hook", codec_ms=1.0), sending_less(19, 100)),
    "steps an optimizer":
        of(job(hook="hook_then_optimizer(fp16)", wire_share=0.5, codec_ms=3.0)),
    "large error": of(QUIET, erring),
    "local by design": of(QUIET, local_by_design),
    "few steps": of(job(steps=4), stalled),
    "hung": hung(QUIET, SyntheticHang(step=20)),
    "hung for a while": hung(QUIET, SyntheticHang(step=20, went_on_after_s=42)),
    "hung between two steps":
        hung(job(ranks=2), SyntheticHang(step=20, bucket=0, rank=1, went_on_after_s=42)),
    "a hang in step 251": hung(
        dataclasses.replace(SMALL, steps=256, bucket_bytes=(1_000_000,) * 2),
        SyntheticHang(step=251, bucket=1, went_on_after_s=42)),
    "late by 1.9 ms of 106": small(late_ms={2: 1.9}),
    "late by 2.6 ms from bucket 3 on": small(late_ms={2: 2.6}, late_from=3),
    "late by less than is worth a name": small(late_ms={2: 0.4}),
    "late and checked": small(late_ms={1: 6.0}, error=0.1, error_every=5, skews=True),
    "late in slow steps that files kept": kept(SyntheticJob(
        ranks=3, steps=100, bucket_bytes=(1_000_000,) * 2, late_ms={1: 200.0}, late_every=6),
        BY_NUMBER),
    "buckets rebuilt": of(LATE_SMALL, rebuilt),
    "incomplete steps": of(LATE_SMALL, incomplete),
    "join": of(LATE_SMALL, joined),
    "warm-up and a pause": of(SMALL, warming_up),
    "two models": two_models,
    "on devices": of(LATE_SMALL, lambda _, completed: timed_by_device(completed)),
    "other collectives": lambda folder: write_others(
        folder, collective(10, 400), collective(100, 600, name="barrier", wire_bytes=0),
        collective(900, 100, name="broadcast", wire_bytes=500, of_ddp=True), ddp_bytes=500,
        unseen_groups=1),
    "other collectives without an end": lambda folder: write_others(
        folder, collective(-2_000_000, 400), collective(500, None, wire_bytes=None)),
    "sharded": sharded(late_ms={1: 30.0}),
    "sharded, with a codec": sharded(coded(1.0), off(0.05)),
    "sharded, of two kinds": sharded(of_two_kinds, micro_steps=2),
    "sharded, mostly hidden": sharded(hidden(0.9), timed_by_device),
    "sharded, in replicas": sharded(ranks=4, replicas=2, steps=12, late_ms={1: 30.0}),
}  # fmt: skip
