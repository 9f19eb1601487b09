"""Record files of a made-up calibrated run, of which one knows all that is to be found.

Truth --simulate, each step with noise--> SimulatedStep --> records of two ranks --> Timeline
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace as changed

from hooktrace.analysis.timeline import Timeline, load
from hooktrace.analysis.whatif.hook_rules import known_as
from hooktrace.analysis.whatif.simulate import simulate
from hooktrace.analysis.whatif.work import Compute, SimulatedStep, StepWork
from hooktrace.records import (
    BucketLayout,
    BucketRecord,
    ClockRecord,
    ComputeRecord,
    LayoutRecord,
    RunInfo,
    Stage,
    StepRecord,
    TrialRecord,
    TrialRound,
)
from hooktrace.records.base import Record
from hooktrace.records.codec import RecordEncoder
from hooktrace.records.files import find_records, record_path
from hooktrace.records.intervals import union_ns
from hooktrace.records.lines import Losses

from .truth import MS, Truth

MODEL = "net"
_PROBED = range(3, 11)
_TRIED = range(11, 17)
OFFSET_NS = 5_000 * MS
FUNCTIONS = {
    "allreduce": "allreduce_hook",
    "fp16": "fp16_compress_hook",
    "quantize-per-channel": "quantization_perchannel_hook",
    "powersgd": "powerSGD_hook",
}


def written(truth: Truth, logdir: Path) -> Timeline:
    """Write the files of a run, and read them."""
    ranks = range(truth.ranks)
    encoders = [RecordEncoder() for _ in ranks]
    lines: list[list[bytes]] = [[] for _ in ranks]
    for rank in ranks:
        for record in _head(truth, rank):
            lines[rank].append(encoders[rank].record(record))
    for step, buckets, others in _steps(truth):
        for rank in ranks:
            own = [_moved(one, rank) for one in buckets]
            lines[rank].append(encoders[rank].buckets(own))  # type: ignore[arg-type]
            lines[rank] += [encoders[rank].record(_moved(one, rank)) for one in (step, *others)]
    record_path(logdir, 0).parent.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        data = b"".join(lines[rank]) + encoders[rank].record(Losses(closed=True))
        record_path(logdir, rank).write_bytes(data)
    return load(find_records(logdir), processes=1)


def _head(truth: Truth, rank: int) -> list[Record]:
    run = RunInfo(
        run_id="made-up", rank=rank, local_rank=rank, world_size=truth.ranks, host="host", pid=1,
        torch_version="2.13.0", backend="gloo", host_anchor_ns=0,
        wall_anchor_ns=1_795_000_000_000 * MS, cores=truth.ranks * int(truth.machine.cores),
        threads=1,
    )  # fmt: skip
    layouts = tuple(
        BucketLayout(
            bucket=i, dtype="float32", device_type="cpu",
            numel=sum(truth.parameters[row].nbytes for row in rows) // 4,
            gradient_bytes=sum(truth.parameters[row].nbytes for row in rows),
            parameters=tuple((truth.parameters[r].name, truth.parameters[r].shape) for r in rows),
        )
        for i, rows in enumerate(truth.buckets)
    )  # fmt: skip
    layout = LayoutRecord(
        model=MODEL, hook=FUNCTIONS[truth.hook], generation=1, step=1, time_ns=0, buckets=layouts,
        hook_options=tuple(truth.own.options.items()), bucket_cap_bytes=25 << 20,
    )  # fmt: skip
    assert known_as(layout.hook, dict(layout.hook_options)) is not None
    clocks = [
        ClockRecord(
            time_ns=at * MS - rank * OFFSET_NS, offset_ns=rank * OFFSET_NS, uncertainty_ns=1000,
            round_trip_ns=int(2 * truth.network.latency_ns), pings=8,
        )
        for at in (0, 60_000)
        if rank
    ]  # fmt: skip
    return [run, layout, *clocks]


def _steps(truth: Truth) -> Iterator[tuple[StepRecord, list[BucketRecord], list[Record]]]:
    random = np.random.default_rng(truth.seed)
    now, before = 10.0 * MS, None
    previous = None
    for number in range(1, truth.steps + 1):
        slower = truth.slower if number in _PROBED else 1.0
        compute = truth.compute(slower * float(np.exp(truth.noise * random.standard_normal())))
        wire = float(np.exp(truth.noise * random.standard_normal()))
        network = replace(truth.network, bandwidth=truth.network.bandwidth * wire)
        work = truth.work(truth.own, compute, truth.buckets)
        simulated = simulate(work, truth.machine, network)
        first = int(now + simulated.ready_ns[0])
        period = None if before is None else first - before
        buckets = _buckets(truth, number, now, simulated, work)
        is_tried = number in _TRIED
        step = _step(number, buckets, simulated, now, period if previous else None)
        step = changed(step, probed=is_tried or number in _PROBED)
        others: list[Record] = []
        if number in _PROBED:
            worked = simulated.step_ns - step.exposed_ns + truth.wire_share * step.wire_busy_ns
            others.append(_compute_record(truth, number, now, compute, simulated))
            others[-1] = changed(others[-1], processor_ns=int(worked))
        if is_tried:
            others += _trials(truth, number, random)
        yield step, buckets, others
        before, previous = first, not step.probed
        now += simulated.step_ns


def _buckets(
    truth: Truth, number: int, now: float, step: SimulatedStep, work: StepWork
) -> list[BucketRecord]:
    found = []
    for i, rows in enumerate(truth.buckets):
        own = np.flatnonzero(step.round_bucket == i)
        ready = int(now + step.ready_ns[i])
        at, stages = ready, []
        for turn, row in enumerate(own):
            issued, started, arrived = (
                int(now + times[row])
                for times in (step.issued_ns, step.started_ns, step.arrived_ns)
            )
            one = work.buckets[i].rounds[turn]
            begun = issued - int(one.before_ns)
            if turn == 0 and truth.own.serial and begun > int(now + step.launched_ns[i]):
                stages.append(Stage(name="turn", start_ns=at, end_ns=begun))
                at = begun
            elif turn == 0:
                at = begun
            stages += [
                Stage(name="compress", start_ns=at, end_ns=issued),
                Stage(name="queue", start_ns=issued, end_ns=started, derived=True),
                Stage(
                    name="wire", start_ns=started, end_ns=arrived, derived=True,
                    collective=one.collective, wire_bytes=int(one.wire_bytes), dtype="float32",
                ),
            ]  # fmt: skip
            at = arrived
        done = int(now + step.done_ns[i])
        stages.append(Stage(name="decompress", start_ns=at, end_ns=done))
        size = sum(truth.parameters[row].nbytes for row in rows)
        found.append(
            BucketRecord(
                model=MODEL, generation=1, step=number, bucket=i, ready_ns=ready,
                launched_ns=int(now + step.launched_ns[i]), done_ns=done, stages=tuple(stages),
                wire_bytes=int(sum(r.wire_bytes for r in work.buckets[i].rounds)), bus_bytes=1.0,
                hook=FUNCTIONS[truth.hook], is_last=i == len(truth.buckets) - 1, dtype="float32",
                device_type="cpu", numel=size // 4, gradient_bytes=size, parameter_count=len(rows),
            )
        )  # fmt: skip
    return found


def _step(
    number: int, buckets: list[BucketRecord], step: SimulatedStep, now: float, period: int | None
) -> StepRecord:
    done = max(one.done_ns for one in buckets)
    wires = [s for one in buckets for s in one.stages if s.name == "wire"]
    wire = union_ns((s.start_ns, s.end_ns) for s in wires)
    return StepRecord(
        model=MODEL, hook=buckets[0].hook, generation=1, step=number, clock="host",
        first_ready_ns=buckets[0].ready_ns, last_ready_ns=buckets[-1].ready_ns, done_ns=done,
        busy_ns=done - buckets[0].ready_ns, exposed_ns=int(step.exposed_ns), wire_busy_ns=wire,
        previous_period_ns=period, gradient_bytes=sum(one.gradient_bytes for one in buckets),
        wire_bytes=sum(one.wire_bytes or 0 for one in buckets), bus_bytes=1.0,
        bucket_count=len(buckets),
    )  # fmt: skip


def _compute_record(
    truth: Truth, number: int, now: float, compute: Compute, step: SimulatedStep
) -> ComputeRecord:
    took = step.launched_ns - step.ready_ns
    gross = []
    passed, bucket = 0.0, 0
    for row, net in enumerate(compute.ready_ns.tolist()):
        gross.append(int(now + net + passed))
        if bucket < len(truth.buckets) and row == max(truth.buckets[bucket]):
            passed += float(took[bucket])
            bucket += 1
    return ComputeRecord(
        model=MODEL, generation=1, step=number,
        parameters=tuple(one.name for one in truth.parameters), ready_ns=tuple(gross),
    )  # fmt: skip


def _trials(truth: Truth, number: int, random: np.random.Generator) -> list[Record]:
    found: list[Record] = []
    for hook in truth.costs:
        for bucket, rows in enumerate(truth.buckets):
            for count in sorted({len(rows), 2}):
                own = [truth.parameters[row] for row in rows[:count]]
                rounds, after = hook.bucket_work(own)
                noise = np.exp(truth.noise * random.standard_normal())
                size = sum(one.nbytes for one in own)
                found.append(
                    TrialRecord(
                        model=MODEL, generation=1, step=number, bucket=bucket, first=0, count=count,
                        hook=hook.hook, options=tuple(hook.options.items()), numel=size // 4,
                        gradient_bytes=size, after_ns=int(after * noise),
                        rounds=tuple(
                            TrialRound(
                                before_ns=int(one.before_ns * noise), collective=one.collective,
                                wire_bytes=int(one.wire_bytes), dtype="float32",
                            )
                            for one in rounds
                        ),
                        relative_l2=0.1 if hook.lossy else 0.0, cosine=0.99,
                    )
                )  # fmt: skip
    return found


def _moved(record: Any, rank: int) -> Any:
    """Return a record in the clock of a rank."""
    by = -rank * OFFSET_NS
    changes: dict[str, Any] = {}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        is_time = name in {"ready_ns", "launched_ns", "done_ns", "first_ready_ns", "last_ready_ns"}
        if is_time and isinstance(value, int):
            changes[name] = value + by
        elif name == "ready_ns":
            changes[name] = tuple(one + by for one in value)
        elif name == "stages":
            changes[name] = tuple(
                changed(one, start_ns=one.start_ns + by, end_ns=one.end_ns + by) for one in value
            )
    return changed(record, **changes)
