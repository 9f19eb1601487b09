"""Records of a made-up job with round numbers: what the drain would hand to an exporter.

The host clock starts at 1 s and the wall clock at ``WALL_ANCHOR_NS`` (a fixed moment), so that
expected times can be written down as integers.  A step lasts 10 ms; bucket ``i`` of it is ready at
``i`` ms and done 2 ms later: 0.1 ms compress, 0.4 ms queue, 1 ms wire, 0.5 ms decompress.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from hooktrace.records import (
    AnomalyRecord,
    AssignmentRecord,
    Batch,
    BucketRecord,
    ClockRecord,
    CompletedStep,
    DeviceSpan,
    ErrorRecord,
    HangRecord,
    JobStepRecord,
    Parameter,
    ParameterError,
    RankStacks,
    RunInfo,
    SkewRecord,
    Stage,
    StepSpread,
    Transfer,
)
from hooktrace.records.content import RankRecords
from hooktrace.records.job import Range
from hooktrace.records.reader import RecordReader
from hooktrace.testing.synthetic import Moments, SyntheticJob
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps

HOST_ANCHOR_NS = 1_000_000_000
WALL_ANCHOR_NS = 1_700_000_000_000_000_000
STEP_NS = 10_000_000
BUCKET_BYTES = 4_000
WIRE_BYTES = 2_000
MODEL = "net"
HOOK = "fp16_compress_hook"
ERROR = ErrorRecord(
    relative_l2=0.25, cosine=0.75, max_absolute=2.0, flipped_share=0.125, reference_l2=8.0
)
"""By a quarter off."""


def sample(bucket_count: int = 2, *, ranks: int = 2) -> SyntheticJob:
    return SyntheticJob(
        ranks=ranks, model=MODEL, hook=HOOK, bucket_bytes=(BUCKET_BYTES,) * bucket_count,
        wire_share=WIRE_BYTES / BUCKET_BYTES, wire_dtype="float16", start_ns=HOST_ANCHOR_NS,
        wall_ns=WALL_ANCHOR_NS,
    )  # fmt: skip


def make_run(rank: int = 0, world_size: int = 2, *, run_id: str = "sample") -> RunInfo:
    """Return the run information of one rank of a single-host job, whose ranks share a clock."""
    run = sample(ranks=world_size).run(rank)
    return replace(
        run, run_id=run_id, local_rank=rank, host="host-a", host_anchor_ns=HOST_ANCHOR_NS
    )


def moments(step: int, bucket: int) -> Moments:
    """Return when a bucket of a sample step was where."""
    ready_ns = HOST_ANCHOR_NS + step * STEP_NS + bucket * 1_000_000
    return Moments(*(ready_ns + us * 1000 for us in (0, 100, 500, 1500, 2000)))


def make_bucket(step: int = 0, bucket: int = 0, *, bucket_count: int = 2) -> BucketRecord:
    """Return one fp16 bucket of a sample step; change fields with ``msgspec.structs.replace``."""
    return _as_sample(sample(bucket_count).bucket(step, bucket, moments(step, bucket)))


def _as_sample(record: BucketRecord) -> BucketRecord:
    """Return the bucket as one of two parameters that was launched a while after compress."""
    return replace(record, parameter_count=2, launched_ns=record.ready_ns + 150_000)


def checked(step: CompletedStep) -> CompletedStep:
    """Return the step with its first bucket checked, by a quarter off."""
    record, (first, *others) = step
    worst = ParameterError(
        name="layer0.bias", relative_l2=float("inf"), cosine=0.0, max_absolute=2.0
    )
    error = replace(ERROR, residual_l2=16.0, worst=(worst,))
    return record, (replace(first, error=error), *others)


def looked_at(step: CompletedStep) -> CompletedStep:
    """Return the step with its first bucket checked, which took 50 ms before DDP had its result."""
    record, (first, *others) = checked(step)
    done_ns = first.done_ns + 50_000_000
    probe = Stage(name="check", start_ns=first.done_ns, end_ns=done_ns)
    first = replace(first, checked=True, done_ns=done_ns, stages=(*first.stages, probe))
    exposed_ns = done_ns - record.last_ready_ns
    record = replace(record, checked=True, done_ns=done_ns, exposed_ns=exposed_ns)
    return record, (first, *others)


def make_step(step: int = 0, *, bucket_count: int = 2) -> CompletedStep:
    """Return a complete step with its buckets: busy from its first ready to its last done."""
    record, buckets = sample(bucket_count).step(
        step,
        [moments(step, i) for i in range(bucket_count)],
        previous_period_ns=STEP_NS if step else None,
    )
    return record, tuple(map(_as_sample, buckets))


def plain(step: CompletedStep, *, sent: tuple[Transfer, ...] | None) -> CompletedStep:
    """Return the step as a plain hook's, whose first bucket alone is known to have sent."""
    record, buckets = step
    moved = [replace(b, stages=(), wire_bytes=None, bus_bytes=None) for b in buckets]
    size = None if sent is None else sum(t.wire_bytes for t in sent)
    moved[0] = replace(moved[0], wire_bytes=size, sent=sent)
    return replace(record, wire_bytes=size, bus_bytes=None, sent=sent), tuple(moved)


def on_device(step: CompletedStep, *, resolved: bool = True) -> CompletedStep:
    """As if it ran on a GPU: from 0 and twice as long; or whose events never came back."""
    record, buckets = step
    moved = []
    for bucket in buckets:
        ready_ns = 2 * (bucket.ready_ns - record.first_ready_ns)
        zero_ns = ready_ns - 2 * bucket.ready_ns
        stages = tuple(
            replace(s, start_ns=zero_ns + 2 * s.start_ns, end_ns=zero_ns + 2 * s.end_ns)
            for s in bucket.stages
        )
        span = DeviceSpan(ready_ns=ready_ns, done_ns=ready_ns + 4_000_000, stages=stages)
        moved.append(replace(bucket, device_type="cuda", device=span if resolved else None))
    times = {
        "communication_ns": 2 * (record.done_ns - record.first_ready_ns),
        "exposed_ns": 4_000_000,
        "wire_in_flight_ns": 2 * len(buckets) * 1_000_000,
    }
    if not resolved:
        times = dict.fromkeys(times)  # type: ignore[assignment]
    return replace(record, clock="device", **times), tuple(moved)


def make_layout(rebuild: int = 1, *, bucket_count: int = 2) -> AssignmentRecord:
    layout = sample(bucket_count).layout()
    buckets = [
        replace(b, parameters=(Parameter(f"layer{i}.weight", (30, 30)),
                               Parameter(f"layer{i}.bias", (100,))))
        for i, b in enumerate(layout.buckets)
    ]  # fmt: skip
    return replace(layout, rebuild=rebuild, step=0, buckets=tuple(buckets))


def make_anomaly(step: int = 0, bucket: int = 0, *, kind: str = "hook_exception") -> AnomalyRecord:
    """Return an anomaly 1.2 ms after its bucket was ready."""
    return AnomalyRecord(
        kind=kind, model=MODEL, hook=HOOK, rebuild=1, step=step, bucket=bucket, stage="wire",
        time_ns=make_bucket(step, bucket).ready_ns + 1_200_000,
        message=f"hook {HOOK} raised ValueError in bucket {bucket}; look at its traceback",
    )  # fmt: skip


def make_hang(step: int = 0, *, ended_after_ns: int | None = None) -> HangRecord:
    """Return a hang at a step's first bucket, of rank 0 that waits for rank 1."""
    since_ns = make_bucket(step).ready_ns
    return HangRecord(
        kind="busy", hang=0, model=MODEL, hook=HOOK, step=step, bucket=0, ranks=(1,), waiting=(0,),
        since_ns=since_ns, since_wall_ns=make_run().wall_ns(since_ns), rank=0,
        message=f"bucket 0 of step {step} has waited 31 s on rank 0 for rank 1, in `f.py:1 g`",
        stacks=(RankStacks(rank=1, pid=1001, host="host-a", state="running", text="f.py:1 g"),),
        ended_after_ns=ended_after_ns,
    )  # fmt: skip


def make_clock(offset_ns: int = 1_500_000, uncertainty_ns: int = 20_000) -> ClockRecord:
    return ClockRecord(
        time_ns=HOST_ANCHOR_NS, offset_ns=offset_ns, uncertainty_ns=uncertainty_ns,
        round_trip_ns=2 * uncertainty_ns, pings=32,
    )  # fmt: skip


def make_skew(
    step: int = 0,
    *,
    rank: int = 0,
    arrivals_ns: tuple[int, ...] = (3_000_000, 0),
    uncertainty_ns: int | None = 20_000,
) -> SkewRecord:
    """Return when two ranks had a step's first bucket ready; rank 0 is 3 ms late."""
    return SkewRecord(
        model=MODEL, hook=HOOK, rebuild=1, step=step, bucket=0, rank=rank,
        time_ns=make_bucket(step).ready_ns, ranks=tuple(range(len(arrivals_ns))),
        arrivals_ns=arrivals_ns, uncertainty_ns=uncertainty_ns,
    )  # fmt: skip


def make_job_step(step: int = 1, *, arrival_delay_ns: int = 3_000_000) -> JobStepRecord:
    """Return a step over two ranks, of which rank 1 was last and waited for nobody."""
    spread = StepSpread(
        step, 2,
        period=Range(2, STEP_NS, 1, STEP_NS + 2_000, 0), period_total_ns=2 * STEP_NS + 2_000,
        exposed=Range(2, 1_000_000, 1, 4_000_000, 0), exposed_total_ns=5_000_000,
        arrival=Range(2, HOST_ANCHOR_NS, 0, HOST_ANCHOR_NS + arrival_delay_ns, 1),
        uncertainty_ns=20_000,
    )  # fmt: skip
    return JobStepRecord(model=MODEL, hook=HOOK, world_size=2, spread=spread)


def make_batch(
    rank: int = 0,
    steps: int = 2,
    *,
    bucket_count: int = 2,
    first_step: int = 0,
    run: RunInfo | None = None,
) -> Batch:
    """Return a batch of complete steps with a layout and nothing lost."""
    return Batch(
        run=run or make_run(rank),
        records=(make_layout(bucket_count=bucket_count),),
        steps=tuple(make_step(first_step + i, bucket_count=bucket_count) for i in range(steps)),
    )


def full_batch(rank: int = 0) -> Batch:
    """Return a batch in which every metric of the table is observed at least once."""
    first, first_buckets = checked(make_step(1))
    failed, (bucket, _) = make_step(4)
    return Batch(
        run=make_run(rank),
        steps=(
            marked(make_step(0), warmup=True),
            (replace(first, previous_period_ns=None), first_buckets),
            make_step(2),
            marked(make_step(3), join_dummy=True),
            (
                replace(failed, complete=False, previous_period_ns=None),
                (replace(bucket, exception="ValueError: boom"),),
            ),
        ),
        records=(make_layout(), make_anomaly(4), make_clock(), make_skew(1), make_job_step()),
        losses={"ring_full": 3},
        failures={"record_file": 1},
    )


def marked(step: CompletedStep, **fields: bool) -> CompletedStep:
    """Return a step of which something holds, and of its buckets."""
    record, buckets = step
    return replace(record, **fields), tuple(replace(b, **fields) for b in buckets)


def sharded_batch(rank: int = 0, *, steps: int = 2) -> Batch:
    """Return a batch of a sharded model's steps; the first has a checked reduce-scatter."""
    job = ShardedJob(steps=steps, units=("<root>", "block"))
    made = [ranks[rank] for ranks in sharded_steps(job)]
    (step, (*others, last)), *later = made
    return Batch(
        run=replace(job.run(rank), run_id="sample"),
        records=(job.layout(),),
        steps=((step, (*others, replace(last, error=ERROR))), *later),
    )


def decoded(lines: Iterable[bytes]) -> RankRecords:
    reader = RecordReader()
    for line in lines:
        reader.feed(line)
    return reader.content()
