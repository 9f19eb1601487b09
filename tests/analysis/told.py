"""Made-up jobs of which the golden files have what the report finds, and no table.

Each is a run in which a rule speaks, or says nothing, for one reason: that is its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as like
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hooktrace.exporters.retention import Retention
from hooktrace.records import AnomalyRecord, BucketRecord, CompletedStep, Parameter
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import record_path
from hooktrace.records.lines import Losses
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis import sharded_jobs as units
from tests.analysis.jobs import (
    BY_NUMBER,
    MS,
    QUIET,
    Writes,
    job,
    joined,
    kept,
    of,
    plain,
    sending_less,
    with_error,
)
from tests.analysis.run.files import (
    Change,
    add,
    run_of,
    steps_of,
    text_of,
    timed_by_device,
    write_ranks,
)
from tests.exporters import records_sample as sample


def sampled(steps: Sequence[CompletedStep], *, ranks: int = 1) -> Writes:
    """Return what writes these steps of the sample on each rank."""
    return lambda folder: write_ranks(
        folder, {rank: text_of(run_of(rank), steps) for rank in range(ranks)}
    )


def with_lines(write: Writes, rank: int, *records: Any) -> Writes:
    """Return what writes the same and then records before the end of a rank's file."""

    def written(folder: Path) -> None:
        write(folder)
        path, end = record_path(folder, rank), b'{"kind":"losses"'
        lines = b"".join(map(RecordEncoder().record, records))
        before, found, after = path.read_bytes().partition(end)
        path.write_bytes(before + lines + found + after)

    return written


def hanging(base: SyntheticJob, hang: SyntheticHang, **other: Any) -> Writes:
    """Return what writes a job that hung, and rank 0's record of another hang."""

    def written(folder: Path) -> None:
        record = write_hung_job(base, hang, folder)
        if other:
            add(folder, 0, replace(record, hang=1, **other))

    return written


def every(change: units.Each) -> Change:
    """Return the change of a step on any rank."""
    return lambda _, completed: change(completed)


def two_parameters(*sizes: int) -> Writes:
    """Return what writes a job of a single bucket that has these two parameters."""
    base = job(steps=12, bucket_bytes=(50_000_000,))

    def written(folder: Path) -> None:
        write_job(base, folder)
        layout, encode = base.layout(), RecordEncoder().record
        pair = tuple(Parameter(name, (n,)) for name, n in zip("ab", sizes, strict=True))
        other = replace(layout, buckets=(replace(layout.buckets[0], parameters=pair),))
        path = record_path(folder, 0)
        path.write_bytes(path.read_bytes().replace(encode(layout), encode(other)))

    return written


def damaged(folder: Path) -> None:
    """A rank without a file, a killed one, an unreadable line, a step cut short, another run."""
    step, buckets = sample.make_step(1)
    cut = [sample.make_step(0), (replace(step, complete=False), buckets)]
    lines = text_of(run_of(0, world_size=5), cut).splitlines(keepends=True)
    killed = text_of(run_of(1, world_size=5), steps_of(2), ended=False)
    older = text_of(run_of(2, run_id="older"), steps_of(1))
    write_ranks(folder, {0: "".join([*lines[:3], "rubbish\n", *lines[3:]]), 1: killed, 2: older})


def short_wires(bucket: BucketRecord) -> BucketRecord:
    """Return the bucket of a device that came as late as its host: nobody waits for it."""
    assert bucket.device is not None
    stages = tuple(
        replace(s, start_ns=s.end_ns - 1000) if s.name == "wire" else s
        for s in bucket.device.stages
    )
    return replace(bucket, device=replace(bucket.device, stages=stages))


def host_alone_late(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step of a device that still works on what it had when its host comes late."""
    step, buckets = timed_by_device(completed)
    return step, tuple(map(short_wires, buckets))


def unresolved(completed: CompletedStep) -> CompletedStep:
    return replace(completed[0], exposed_ns=None), completed[1]


def held_by_its_hook(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; rank 1's call for bucket 3 takes 6 ms more."""
    step, buckets = completed
    slow = replace(buckets[3], launched_ns=buckets[3].launched_ns + 6 * MS)
    return completed if rank != 1 else (step, (*buckets[:3], slow, *buckets[4:]))


PAUSE = 500 * MS


def checkpointing(rank: int, completed: CompletedStep) -> CompletedStep:
    """Return the step; rank 0 writes a checkpoint after steps 10 and 20, others wait in the next.

    The long period is a step earlier on rank 0 than on the others.
    """
    step, buckets = completed
    before = step.previous_period_ns or 0
    if rank == 0 and step.step - 1 in {10, 20}:
        done = max(b.done_ns for b in buckets) + PAUSE
        late = [replace(b, ready_ns=b.ready_ns + PAUSE, stages=()) for b in buckets]
        late = [replace(b, launched_ns=b.ready_ns, done_ns=done) for b in late]
        first, last = late[0].ready_ns, late[-1].ready_ns
        return replace(
            step, previous_period_ns=before + PAUSE, first_ready_ns=first, last_ready_ns=last,
            done_ns=done, communication_ns=done - first, exposed_ns=done - last,
        ), tuple(late)  # fmt: skip
    if rank and step.step - 1 in {10, 20}:
        *others, last_one = buckets
        last_one = replace(last_one, done_ns=last_one.done_ns + PAUSE)
        exposed = (step.exposed_ns or 0) + PAUSE
        return replace(step, done_ns=step.done_ns + PAUSE, exposed_ns=exposed), (*others, last_one)
    if rank and step.step - 2 in {10, 20}:
        return replace(step, previous_period_ns=before + PAUSE), buckets
    return completed


def one_slow(steps: list[CompletedStep]) -> list[CompletedStep]:
    """Return the steps; after the eleventh there is a pause of 100 ms."""
    record, buckets = steps[11]
    return [*steps[:11], (replace(record, previous_period_ns=110 * MS), buckets), *steps[12:]]


def stopped(i: int) -> CompletedStep:
    """Return a step of the sample; in the seventh all wait for 5 s after their launches."""
    step, buckets = sample.make_step(i)
    wait = 5000 * MS if i == 7 else 0
    exposed = (step.exposed_ns or 0) + wait
    return replace(step, done_ns=step.done_ns + wait, exposed_ns=exposed), buckets


def warming(completed: CompletedStep) -> CompletedStep:
    """Return the step of a model that has not settled."""
    step, buckets = completed
    return replace(step, warmup=True), tuple(replace(b, warmup=True) for b in buckets)


def anomaly(kind: str, bucket: int, message: str, rank: int = 0) -> AnomalyRecord:
    """Return what a rank records of a bucket of the sample's second step, rank 1 of the first."""
    return AnomalyRecord(
        kind=kind, model=sample.MODEL, hook=sample.HOOK, rebuild=1, step=2 - rank, bucket=bucket,
        stage="hook", time_ns=10**9, message=message, rank=rank,
    )  # fmt: skip


def not_averaged(rank: int) -> list[AnomalyRecord]:
    """Return what a rank records of a hook that forgets to divide."""
    return [anomaly("not_averaged", b, f"divide on {rank}", rank) for b in range(2)]


def stall(rank: int, step: int) -> AnomalyRecord:
    """Return what a rank records of a step that took long, in words alone."""
    return replace(
        anomaly("stall", -1, "10 s, where 2 ms is usual", rank), model="synthetic", step=step,
        stage="exposed", time_ns=step * 10**8,
    )  # fmt: skip


def full(folder: Path) -> None:
    """The oldest parts of the file are gone, and no part could hold some of the records."""
    write_job(SyntheticJob(ranks=1, steps=10), folder)
    lost, gone = {"buckets": 3}, {"parts": 2, "steps": 4000, "buckets": 50}
    path, encode = record_path(folder, 0), RecordEncoder().record
    other = encode(Losses(lost=lost, removed=gone, closed=True))
    path.write_bytes(path.read_bytes().replace(encode(Losses(closed=True)), other))


EVERY_TENTH = Retention(first_steps=0, window_steps=2, window_every=20, extra_share=0.0)
"""Keeps the buckets of every tenth step, whether or not a step is slow."""
SLOW_ALONE = Retention(first_steps=0, window_steps=0, extra_share=1.0)
SLOW_OFTEN = SyntheticJob(ranks=2, steps=400, bucket_bytes=(4_000_000,), slow_every=4)
"""In every fourth step the only bucket takes 42 ms in place of 4.2."""
UNIT = "blocks.2 all-gather (forward)"
STALLS = job(late_ms={1: 3000.0}, late_every=25)
LOSSY: dict[str, Any] = {"hook": "fp16_compress_hook", "wire_share": 0.5}

TOLD: dict[str, Writes] = {
    "late in turns, two ranks": of(job(ranks=2, steps=20, jitter_ms=5.0)),
    "late in every third step": of(job(ranks=4, late_ms={2: 7.0}, late_from=3, late_every=3)),
    "late by its host alone": of(job(late_ms={2: 7.0}, late_from=3), host_alone_late),
    "late by its hook": of(job(late_ms={1: 6.0}, late_from=4), held_by_its_hook),
    "late in every other step, codec": of(SyntheticJob(
        ranks=2, steps=40, bucket_bytes=(8_000_000,), codec_ms=2.0, jitter_ms=0.0,
        late_ms={1: 8.0}, late_every=2)),
    "late until the other has no data": of(job(ranks=2, late_ms={1: 6.0}), joined),
    "stalls, one rank late": of(STALLS),
    "stalls, two ranks late": of(like(STALLS, late_ms={1: 3000.0, 2: 2900.0})),
    "stalls, nobody knows why": sampled([stopped(i) for i in range(12)], ranks=2),
    "slow step, outside": sampled(one_slow(steps_of(20))),
    "slow steps, checkpoints": of(job(ranks=4), checkpointing),
    "slow steps, checkpoints, two ranks": of(job(ranks=2), checkpointing),
    "buckets of few steps": kept(SyntheticJob(
        ranks=2, steps=300, bucket_bytes=(30_000_000, 4_000_000), backward_ms=10.0), EVERY_TENTH),
    "buckets of steps by number": kept(SLOW_OFTEN, BY_NUMBER),
    "buckets of slow steps": kept(SLOW_OFTEN, SLOW_ALONE),
    "exposed time unknown": of(job(steps=12), every(unresolved)),
    "one bucket of two parameters": two_parameters(6_000_000, 6_500_000),
    "one bucket of a large parameter": two_parameters(12_499_000, 1_000),
    "smaller last bucket": of(job(
        bucket_bytes=(8_000_000,) * 7 + (7_000_000,), backward_ms=30.0, latency_ms=3.0)),
    "sends less after ten steps": of(QUIET, sending_less(10)),
    "sends less after the first step": of(QUIET, sending_less(1)),
    "codec that pays": of(job(**LOSSY, codec_ms=0.05)),
    "codec, 2 ms a bucket": of(job(**LOSSY, ranks=2, bucket_bytes=(4_000_000,) * 8, codec_ms=1.0)),
    "codec, nothing saved": of(job(hook="fp16_compress_hook", ranks=2, codec_ms=1.0)),
    "codec, no time": of(job(**LOSSY, ranks=2, codec_ms=0.0)),
    "ddp's own average": of(job(
        hook="ddp_allreduce", bucket_bytes=(4_000_000,) * 7 + (16_000_000,))),
    "hook of one's own": of(job(hook="my_hook", bucket_bytes=(4_000_000,) * 7 + (16_000_000,))),
    "error with feedback": sampled([sample.checked(sample.make_step(i)) for i in range(3)]),
    "error out of range": of(job(hook="fp16_compress_hook"), with_error(
        relative_l2=0.5, max_absolute=1e-8, reference_l2=1e-6)),
    "error of scale": of(job(), with_error(cosine=1.0)),
    "small gain for half the bits": of(SyntheticJob(steps=40, late_ms={2: 7.0}, late_from=3)),
    "large gain for half the bits": of(SyntheticJob(steps=40, bytes_per_second=2e8)),
    "not averaged": with_lines(
        with_lines(sampled(steps_of(3), ranks=2), 0, *not_averaged(0)),
        1, *not_averaged(1)),
    "anomaly of a hook that raised": with_lines(
        sampled(steps_of(3)), 0, anomaly("hook_exception", 1, "look at it")),
    "units, anomaly of those that raised": with_lines(units.sharded(), 0, *[
        replace(anomaly("hook_exception", i, "look at it"), model="net", rebuild=0)
        for i in range(6)]),
    "anomaly of a gradient": partial(
        write_job, SyntheticJob(ranks=3, steps=12, bucket_bytes=(4_000_000,) * 2, anomaly_rank=2)),
    "hang in the first step": hanging(job(ranks=4), SyntheticHang(step=1)),
    "hang and stalls": hanging(
        job(ranks=4, late_ms={1: 3000.0}, late_every=25),
        SyntheticHang(step=12, went_on_after_s=42)),
    "stalls, as ranks recorded them": with_lines(with_lines(hanging(
        job(), SyntheticHang(step=12, went_on_after_s=42)),
        0, stall(0, 12), stall(0, 25)), 2, stall(2, 25), stall(2, 28)),
    "hang of a unit": hanging(
        job(), SyntheticHang(step=12), kind="uneven_inputs", unit=UNIT,
        message=f"{UNIT} of step 12 has waited 31 s on rank 0 for rank 2"),
    "hang outside of all hooks": hanging(
        job(ranks=4), SyntheticHang(step=12), model="", hook="", step=0, bucket=-1,
        message="rank 0 waits"),
    "never settled": sampled([warming(sample.make_step(i)) for i in range(1, 5)]),
    "checked in every step": sampled([sample.looked_at(sample.make_step(i)) for i in range(1, 5)]),
    "damaged files": damaged,
    "full files": full,
    "sends nobody knows what": sampled([
        (replace(step, sent_unknown=why), buckets)
        for i, why in enumerate(["it is off", None, "it is full", "it is off"])
        for step, buckets in [sample.plain(sample.make_step(i), sent=None)]]),
    "two models send nobody knows what": sampled([
        (replace(step, model=model, sent_unknown="it is off"),
         tuple(replace(bucket, model=model) for bucket in buckets))
        for i in range(4) for model in ("net", "critic")
        for step, buckets in [sample.plain(sample.make_step(i), sent=None)]]),
    "one rank, a plain hook": of(job(ranks=1, steps=20), plain),
    "device without some times": sampled(
        [sample.on_device(sample.make_step(i), resolved=i < 4) for i in range(5)]),
    "units, hidden": units.sharded(units.hidden(0.999)),
    "units, slow steps": units.sharded(units.slow),
    "units, costly hook": units.sharded(units.coded(3.5)),
    "units, hook that sends more": units.sharded(units.coded(1.5, 1.5)),
    "units, large error": units.sharded(units.off(0.5)),
    "units, error of scale": units.sharded(units.off(1.0, 0.9995)),
    "units, error of no scale": units.sharded(units.off(1.0)),
    "units, on a device": units.sharded(timed_by_device),
    "units, on a device, not all seen": units.sharded(units.not_all_seen, timed_by_device),
    "units, late": units.sharded(late_ms={1: 30.0}),
    "units, late, clocks unknown": units.sharded(late_ms={1: 60.0}, clocks=False),
    "units, late in a part nobody knows": units.sharded(
        ranks=4, replicas=2, late_ms={1: 30.0}, tells_members=False
    ),
    "replicas, late": units.sharded(ranks=4, replicas=2, late_ms={2: 50.0}, late_at=4),
}  # fmt: skip
"""What writes each job, by what is said of it or not."""
