"""Jobs of a sharded model of which one knows what they are like; all collectives are synchronous.

A collective begins when its last rank has come, and all ranks leave it together: a rank that is
late to each unit makes the others wait at each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from hooktrace.records import (
    BucketLayout,
    BucketRecord,
    CompletedStep,
    DeviceSpan,
    ErrorRecord,
    LayoutRecord,
    Stage,
    Unit,
)
from hooktrace.records.bucket import UnitCollective
from hooktrace.records.intervals import bus_bytes
from hooktrace.testing.rank_file import rank_file
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_shards import step_of_units
from tests.analysis.timeline.files import write_ranks

Phase = Literal["forward", "backward"]

MS = 1_000_000
ROOT = "<root>"


@dataclass(frozen=True, kw_only=True)
class ShardedJob:
    """What the job is like; a unit of ``block_bytes`` whole is gathered, reduced and scattered.

    ``again``: blocks are gathered in backward too.  ``late_ms``: by rank, how much longer than the
    others it computes before each collective of ``late_at`` (all where that is empty).  ``group``:
    of how many ranks each collective is.  ``hidden``: the share of each collective that training
    does not wait for.  ``slow``: by unit, how many times as long its collectives take.
    ``stall_ms``: by which rank 1 comes later to ``late_at`` in step 20.  ``codec_ms``: compress,
    and again decompress, around each reduce-scatter, which then sends ``sends`` of its bytes.
    ``prefix``: of the blocks' names.  ``odd``: steps that begin with a second forward pass, whose
    collectives a layout of their own adds to those that there were.  ``on_device``: times are a
    device's.  ``unseen``: units of whose reduce-scatters it is not known what training waited for.
    """

    ranks: int = 3
    steps: int = 30
    blocks: int = 4
    block_bytes: int = 12_000_000
    latency_ms: float = 0.2
    bytes_per_second: float = 1e9
    compute_ms: float = 5.0
    again: bool = True
    late_ms: dict[int, float] = field(default_factory=dict)
    late_at: tuple[int, ...] = ()
    group: int | None = None
    hidden: float = 0.0
    slow: dict[str, float] = field(default_factory=dict)
    stall_ms: float = 0.0
    slow_every: int = 0
    codec_ms: float = 0.0
    sends: float = 0.25
    error: float | None = None
    clocks: bool = True
    prefix: str = "blocks"
    odd: tuple[int, ...] = ()
    on_device: bool = False
    unseen: tuple[str, ...] = ()

    @property
    def units(self) -> list[Unit]:
        """The calls of a step, in order."""
        blocks = [f"{self.prefix}.{i}" for i in range(self.blocks)]
        found = [_unit(name, "all_gather", "forward") for name in (ROOT, *blocks)]
        for name in reversed(blocks):
            found += [_unit(name, "all_gather", "backward")] if self.again else []
            found.append(_unit(name, "reduce_scatter", "backward"))
        return [*found, _unit(ROOT, "reduce_scatter", "backward")]

    @property
    def every(self) -> list[Unit]:
        """The same, and then what odd steps have beside."""
        first = [unit for unit in self.units if unit.phase == "forward"] if self.odd else []
        return [*self.units, *(replace(unit, turn=1) for unit in first)]

    def in_step(self, number: int) -> list[int]:
        """Return the numbers of a step's calls, in order."""
        usual, every = len(self.units), len(self.every)
        return [*(range(usual, every) if number in self.odd else ()), *range(usual)]

    def generation(self, number: int) -> int:
        """Return the generation of a step: the first odd one begins the second."""
        return 2 if self.odd and number >= min(self.odd) else 1

    @property
    def base(self) -> SyntheticJob:
        """What a job of buckets has in common with this one: the run, and the ranks' clocks."""
        return SyntheticJob(ranks=self.ranks, steps=self.steps, clocks=self.clocks, model="net")

    def payload(self, unit: Unit) -> int:
        """Return what a rank gives to a collective: a shard to gathers, all to reductions."""
        ranks = self.group or self.ranks
        return self.block_bytes // ranks if unit.collective == "all_gather" else self.block_bytes

    def layout(self, generation: int = 1) -> LayoutRecord:
        """Return the layout of the calls."""
        units = self.units if generation == 1 else self.every
        buckets = tuple(
            BucketLayout(
                bucket=i, dtype="float32", device_type="cpu", numel=self.payload(unit) // 4,
                gradient_bytes=self.payload(unit), unit=unit,
                parameters=((f"{unit.name}.weight", (self.block_bytes // 4,)),),
            )
            for i, unit in enumerate(units)
        )  # fmt: skip
        return LayoutRecord(
            model="net", hook="fully_shard", generation=generation, step=0, time_ns=0,
            buckets=buckets,
        )  # fmt: skip

    def step(self, number: int, begun: int) -> tuple[list[list[BucketRecord]], int]:
        """Return the calls of a step on each rank, and when it ends, in rank 0's clock."""
        found: list[list[BucketRecord]] = [[] for _ in range(self.ranks)]
        now = begun
        for i in self.in_step(number):
            unit = self.every[i]
            ready = [now + self._computes(number, rank, i) for rank in range(self.ranks)]
            codec = int(self.codec_ms * MS) if unit.collective == "reduce_scatter" else 0
            begin = max(ready) + codec
            size = int(self.payload(unit) * (self.sends if codec else 1))
            moved = bus_bytes(unit.collective, size, self.group or self.ranks) or 0.0
            takes = self.latency_ms * MS + moved / self.bytes_per_second * 1e9
            takes *= self.slow.get(unit.name, 1.0)
            if self.slow_every and number % self.slow_every == 0:
                takes *= 10
            end = begin + int(takes)
            now = end + codec
            for rank in range(self.ranks):
                times = ready[rank], ready[rank] + codec, end, now
                found[rank].append(self._call(number, rank, i, times, size))
        return found, now

    def _computes(self, number: int, rank: int, i: int) -> int:
        late = self.late_ms.get(rank, 0.0) if i in self.late_at or not self.late_at else 0.0
        if number == 20 and rank == 1 and i in self.late_at:
            late += self.stall_ms
        return int((self.compute_ms + late) * MS)

    def _call(
        self, number: int, rank: int, i: int, times: tuple[int, int, int, int], size: int
    ) -> BucketRecord:
        unit, layout = self.every[i], self.layout(2).buckets[i]
        ready, encoded, arrived, done = (at - self.base.offset_ns(rank) for at in times)
        stages = [
            Stage(
                name="wire", start_ns=encoded, end_ns=arrived, collective=unit.collective,
                wire_bytes=size, dtype="float32",
            )
        ]  # fmt: skip
        if encoded > ready:
            stages.insert(0, Stage(name="compress", start_ns=ready, end_ns=encoded))
            stages.append(Stage(name="decompress", start_ns=arrived, end_ns=done))
        error = None
        if self.error is not None and number % 10 == 0 and unit.collective == "reduce_scatter":
            error = ErrorRecord(
                relative_l2=self.error, cosine=0.9, max_absolute=0.1, flipped_share=0.0,
                reference_l2=3.0,
            )  # fmt: skip
        return BucketRecord(
            model="net", hook="fully_shard", generation=self.generation(number), step=number,
            bucket=i, is_last=i == len(self.units) - 1, dtype="float32", device_type="cpu",
            numel=layout.numel, gradient_bytes=layout.gradient_bytes, parameter_count=1,
            ready_ns=ready, launched_ns=done, done_ns=done, stages=tuple(stages),
            wire_bytes=size, bus_bytes=bus_bytes(unit.collective, size, self.group or self.ranks),
            exposed_ns=self._exposed(unit, done - ready), unit=unit, error=error,
            probed=error is not None,
        )  # fmt: skip

    def _exposed(self, unit: Unit, takes: int) -> int | None:
        if unit.name in self.unseen and unit.collective == "reduce_scatter":
            return None
        return int(takes * (1 - self.hidden))

    def _seen(self, completed: CompletedStep) -> CompletedStep:
        step, calls = completed
        if any(call.exposed_ns is None for call in calls):
            step = replace(step, exposed_ns=None)
        if not self.on_device:
            return step, calls
        first = step.first_ready_ns
        return replace(step, clock="device"), tuple(_on_device(call, first) for call in calls)

    def completed(self) -> list[list[CompletedStep]]:
        """Return the steps of each rank."""
        found: list[list[CompletedStep]] = [[] for _ in range(self.ranks)]
        now = self.base.start_ns
        for number in range(self.steps):
            of_ranks, now = self.step(number, now)
            for steps, calls in zip(found, of_ranks, strict=True):
                period = calls[0].ready_ns - steps[-1][0].first_ready_ns if steps else None
                steps.append(self._seen(step_of_units(calls, period)))
        return found


def _on_device(call: BucketRecord, first: int) -> BucketRecord:
    stages = tuple(
        replace(stage, start_ns=stage.start_ns - first, end_ns=stage.end_ns - first)
        for stage in call.stages
    )
    ready, done = call.ready_ns - first, call.done_ns - first
    span = DeviceSpan(ready_ns=ready, done_ns=done, stages=stages)
    return replace(call, device_type="cuda", stages=(), device=span)


def swapped(buckets: Sequence[BucketRecord]) -> tuple[BucketRecord, ...]:
    """Return the calls of a rank that met the second and the third unit the other way around."""
    numbers = {1: 2, 2: 1}
    return tuple(replace(b, bucket=numbers.get(b.bucket, b.bucket)) for b in buckets)


def write_sharded(
    job: ShardedJob, folder: Path, *, files: int | None = None, unlike: Collection[int] = ()
) -> None:
    """Write the files of a job's first ranks; those of ``unlike`` number two units otherwise."""
    for rank, completed in enumerate(job.completed()[:files]):
        change = swapped if rank in unlike else tuple
        steps = [(step, change(buckets)) for step, buckets in completed]
        records = [job.base.run(rank), job.layout(), *job.base.clock_records(rank)]
        records += [job.layout(2)] if job.odd else []
        write_ranks(folder, {rank: rank_file(records, steps).decode()})


def _unit(name: str, collective: UnitCollective, phase: Phase) -> Unit:
    return Unit(name=name, collective=collective, phase=phase)
