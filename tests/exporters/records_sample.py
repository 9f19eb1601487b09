"""Sample records with round numbers: what the drain would hand to an exporter.

The host clock starts at 1 s and the wall clock at ``WALL_ANCHOR_NS`` (a fixed moment), so that
expected times can be written down as integers.  A step lasts 10 ms; bucket ``i`` of it is ready at
``i`` ms and done 2 ms later: 0.1 ms compress, 0.4 ms queue, 1 ms wire, 0.5 ms decompress.
"""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.records import (
    AnomalyRecord,
    Batch,
    BucketLayout,
    BucketRecord,
    ClockRecord,
    DeviceSpan,
    ErrorRecord,
    LayoutRecord,
    ParameterError,
    RunInfo,
    SkewRecord,
    Stage,
    StepRecord,
    Transfer,
)

HOST_ANCHOR_NS = 1_000_000_000
WALL_ANCHOR_NS = 1_700_000_000_000_000_000
STEP_NS = 10_000_000
BUCKET_BYTES = 4_000
WIRE_BYTES = 2_000
MODEL = "net"
HOOK = "fp16_compress_hook"


def make_run(rank: int = 0, world_size: int = 2, *, run_id: str = "sample") -> RunInfo:
    """Return the run information of one rank of a single-host job."""
    return RunInfo(
        run_id=run_id,
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        host="host-a",
        pid=1000 + rank,
        torch_version="2.13.0",
        backend="gloo",
        host_anchor_ns=HOST_ANCHOR_NS,
        wall_anchor_ns=WALL_ANCHOR_NS,
    )


def make_stages(start_ns: int) -> tuple[Stage, ...]:
    """Return the four stages of a 2 ms bucket that was ready at ``start_ns``."""
    marks = [start_ns + us * 1000 for us in (0, 100, 500, 1500, 2000)]
    return (
        Stage(name="compress", start_ns=marks[0], end_ns=marks[1]),
        Stage(name="queue", start_ns=marks[1], end_ns=marks[2], derived=True),
        Stage(
            name="wire",
            start_ns=marks[2],
            end_ns=marks[3],
            derived=True,
            collective="all_reduce",
            wire_bytes=WIRE_BYTES,
            dtype="float16",
        ),
        Stage(name="decompress", start_ns=marks[3], end_ns=marks[4]),
    )


def make_bucket(step: int = 0, bucket: int = 0, *, bucket_count: int = 2) -> BucketRecord:
    """Return one fp16 bucket of a sample step; change fields with ``msgspec.structs.replace``."""
    ready_ns = HOST_ANCHOR_NS + step * STEP_NS + bucket * 1_000_000
    return BucketRecord(
        model=MODEL,
        hook=HOOK,
        generation=1,
        step=step,
        bucket=bucket,
        is_last=bucket == bucket_count - 1,
        dtype="float32",
        device_type="cpu",
        numel=BUCKET_BYTES // 4,
        gradient_bytes=BUCKET_BYTES,
        parameter_count=2,
        ready_ns=ready_ns,
        launched_ns=ready_ns + 150_000,
        done_ns=ready_ns + 2_000_000,
        stages=make_stages(ready_ns),
        wire_bytes=WIRE_BYTES,
        bus_bytes=float(WIRE_BYTES),
    )


def probed(
    step: tuple[StepRecord, tuple[BucketRecord, ...]],
) -> tuple[StepRecord, tuple[BucketRecord, ...]]:
    """Return the step with its first bucket probed, by a quarter off."""
    record, (first, *others) = step
    error = ErrorRecord(
        relative_l2=0.25,
        cosine=0.75,
        max_absolute=2.0,
        flipped_share=0.125,
        reference_l2=8.0,
        residual_l2=16.0,
        worst=(
            ParameterError(
                name="layer0.bias", relative_l2=float("inf"), cosine=0.0, max_absolute=2.0
            ),
        ),
    )
    return record, (replace(first, error=error), *others)


def make_step(
    step: int = 0, *, bucket_count: int = 2
) -> tuple[StepRecord, tuple[BucketRecord, ...]]:
    """Return a complete step with its buckets: busy from its first ready to its last done."""
    buckets = tuple(make_bucket(step, i, bucket_count=bucket_count) for i in range(bucket_count))
    first_ready_ns, last_ready_ns = buckets[0].ready_ns, buckets[-1].ready_ns
    done_ns = buckets[-1].done_ns
    record = StepRecord(
        model=MODEL,
        hook=HOOK,
        generation=1,
        step=step,
        clock="host",
        first_ready_ns=first_ready_ns,
        last_ready_ns=last_ready_ns,
        done_ns=done_ns,
        busy_ns=done_ns - first_ready_ns,
        exposed_ns=done_ns - last_ready_ns,
        wire_busy_ns=bucket_count * 1_000_000,
        period_ns=STEP_NS if step else None,
        gradient_bytes=bucket_count * BUCKET_BYTES,
        wire_bytes=bucket_count * WIRE_BYTES,
        bus_bytes=float(bucket_count * WIRE_BYTES),
        bucket_count=bucket_count,
    )
    return record, buckets


def opaque(
    step: tuple[StepRecord, tuple[BucketRecord, ...]], *, sent: tuple[Transfer, ...] | None
) -> tuple[StepRecord, tuple[BucketRecord, ...]]:
    """Return the step as an opaque hook's, whose first bucket alone is known to have sent."""
    record, buckets = step
    moved = [replace(b, stages=(), wire_bytes=None, bus_bytes=None) for b in buckets]
    size = None if sent is None else sum(t.wire_bytes for t in sent)
    moved[0] = replace(moved[0], wire_bytes=size, sent=sent)
    return replace(record, wire_bytes=size, bus_bytes=None, sent=sent), tuple(moved)


def on_device(
    step: tuple[StepRecord, tuple[BucketRecord, ...]], *, resolved: bool = True
) -> tuple[StepRecord, tuple[BucketRecord, ...]]:
    """Return the step as if it ran on a GPU: device times run from 0 and are twice as long.

    With ``resolved=False`` the device events never came back.
    """
    record, buckets = step
    moved = []
    for bucket in buckets:
        ready_ns = 2 * (bucket.ready_ns - record.first_ready_ns)
        stages = tuple(
            replace(
                s,
                start_ns=ready_ns + 2 * (s.start_ns - bucket.ready_ns),
                end_ns=ready_ns + 2 * (s.end_ns - bucket.ready_ns),
            )
            for s in bucket.stages
        )
        span = DeviceSpan(ready_ns=ready_ns, done_ns=ready_ns + 4_000_000, stages=stages)
        moved.append(replace(bucket, device_type="cuda", device=span if resolved else None))
    busy_ns = 2 * (record.done_ns - record.first_ready_ns)
    timed = replace(
        record,
        clock="device",
        busy_ns=busy_ns if resolved else None,
        exposed_ns=4_000_000 if resolved else None,
        wire_busy_ns=2 * len(buckets) * 1_000_000 if resolved else None,
    )
    return timed, tuple(moved)


def make_layout(generation: int = 1, *, bucket_count: int = 2) -> LayoutRecord:
    """Return the layout of the sample's buckets, two parameters in each."""
    return LayoutRecord(
        model=MODEL,
        hook=HOOK,
        generation=generation,
        step=0,
        time_ns=HOST_ANCHOR_NS,
        buckets=tuple(
            BucketLayout(
                bucket=i,
                dtype="float32",
                device_type="cpu",
                numel=BUCKET_BYTES // 4,
                gradient_bytes=BUCKET_BYTES,
                parameters=((f"layer{i}.weight", (30, 30)), (f"layer{i}.bias", (100,))),
            )
            for i in range(bucket_count)
        ),
    )


def make_anomaly(step: int = 0, bucket: int = 0, *, kind: str = "hook_exception") -> AnomalyRecord:
    """Return an anomaly 1.2 ms after its bucket was ready."""
    return AnomalyRecord(
        kind=kind,
        model=MODEL,
        hook=HOOK,
        generation=1,
        step=step,
        bucket=bucket,
        stage="wire",
        time_ns=make_bucket(step, bucket).ready_ns + 1_200_000,
        message=f"hook {HOOK} raised ValueError in bucket {bucket}; look at its traceback",
    )


def make_clock(offset_ns: int = 1_500_000, uncertainty_ns: int = 20_000) -> ClockRecord:
    """Return a measurement of the clock at the beginning."""
    return ClockRecord(
        time_ns=HOST_ANCHOR_NS,
        offset_ns=offset_ns,
        uncertainty_ns=uncertainty_ns,
        round_trip_ns=2 * uncertainty_ns,
        pings=32,
    )


def make_skew(
    step: int = 0,
    *,
    rank: int = 0,
    arrivals_ns: tuple[int, ...] = (3_000_000, 0),
    uncertainty_ns: int | None = 20_000,
) -> SkewRecord:
    """Return when two ranks had a step's first bucket ready; rank 0 is 3 ms late."""
    return SkewRecord(
        model=MODEL,
        hook=HOOK,
        generation=1,
        step=step,
        bucket=0,
        time_ns=make_bucket(step).ready_ns,
        rank=rank,
        ranks=tuple(range(len(arrivals_ns))),
        arrivals_ns=arrivals_ns,
        uncertainty_ns=uncertainty_ns,
    )


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
    warmup_step, warmup_buckets = make_step(0)
    shadow_step, shadow_buckets = make_step(3)
    failed_step, failed_buckets = make_step(4)
    failed = (replace(failed_buckets[0], exception="ValueError: boom"),)
    return Batch(
        run=make_run(rank),
        steps=(
            (
                replace(warmup_step, warmup=True),
                tuple(replace(b, warmup=True) for b in warmup_buckets),
            ),
            probed(make_step(1)),
            make_step(2),
            (
                replace(shadow_step, shadow=True),
                tuple(replace(b, shadow=True) for b in shadow_buckets),
            ),
            (replace(failed_step, complete=False), failed),
        ),
        records=(make_layout(), make_anomaly(4), make_clock(), make_skew(1)),
        losses={"ring_full": 3},
        failures={"record_file": 1},
    )
