"""Jobs of a sharded model of which one knows what they are like; all collectives are synchronous.

A collective begins when its last rank has come, and all ranks leave it together: a rank that is
late to each unit makes the others wait at each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from hooktrace.records import (
    AssignmentRecord,
    BucketRecord,
    CompletedStep,
    DeviceSpan,
    ErrorRecord,
    Stage,
    Unit,
)
from hooktrace.records.intervals import bus_bytes
from hooktrace.testing.rank_file import rank_file
from hooktrace.testing.synthetic_shards import ShardedJob as Replicated
from hooktrace.testing.synthetic_shards import step_of_units
from tests.analysis.run.files import write_ranks

MS = 1_000_000


def units(count: int, prefix: str = "blocks") -> tuple[str, ...]:
    """Return the names of the root and of so many blocks."""
    return ("<root>", *(f"{prefix}.{i}" for i in range(count)))


@dataclass(frozen=True, kw_only=True)
class ShardedJob(Replicated):
    """What else the job is like; steps count from 0, and all ranks are in each collective.

    ``again``: blocks are gathered in backward too.  ``hidden``: the share of each collective that
    training does not wait for.  ``slow_every``: in which steps all take ten times as long.
    ``codec_ms``: compress, and again decompress, around each reduce-scatter, which then sends
    ``sends`` of its bytes.
    ``odd``: steps that begin with a second forward pass, whose collectives a layout of their own
    adds to those that there were.  ``on_device``: times are a device's.  ``unseen``: units of whose
    reduce-scatters it is not known what training waited for.
    """

    ranks: int = 3
    steps: int = 30
    model: str = "net"
    units: tuple[str, ...] = units(4)
    bytes: int = 12_000_000
    compute_ms: float = 5.0
    latency_ms: float = 0.2
    bytes_per_second: float = 1e9
    again: bool = True
    hidden: float = 0.0
    slow_every: int = 0
    codec_ms: float = 0.0
    sends: float = 0.25
    error: float | None = None
    cosine: float = 0.9
    odd: tuple[int, ...] = ()
    on_device: bool = False
    unseen: tuple[str, ...] = ()

    def schedule(self) -> list[tuple[float, Unit]]:
        """Return the collectives of a step, and then what odd steps have beside."""
        found = [Unit(name=n, collective="all_gather", phase="forward") for n in self.units]
        more = [replace(unit, repeat=1) for unit in found] if self.odd else []
        for name in reversed(self.units):
            if self.again and name != self.units[0]:
                found.append(Unit(name=name, collective="all_gather", phase="backward"))
            found.append(Unit(name=name, collective="reduce_scatter", phase="backward"))
        return [(self.compute_ms, unit) for unit in (*found, *more)]

    @property
    def usual(self) -> int:
        """The number of collectives in a step that is not odd."""
        return len(self.slots()) - len(self.units) * bool(self.odd)

    def assignments(self) -> list[AssignmentRecord]:
        """Return the layout of the collectives, and the one that the first odd step begins."""
        every = self.layout()
        return [
            replace(every, buckets=every.buckets[: self.usual]),
            *([replace(every, rebuild=1)] if self.odd else []),
        ]

    def completed(self) -> list[list[CompletedStep]]:
        """Return the steps of each rank."""
        found: list[list[CompletedStep]] = [[] for _ in range(self.ranks)]
        now = self.start_ns
        for number in range(self.steps):
            of_ranks, now = self._calls(number, now)
            for steps, calls in zip(found, of_ranks, strict=True):
                period = calls[0].ready_ns - steps[-1][0].first_ready_ns if steps else None
                steps.append(self._seen(step_of_units(calls, period)))
        return found

    def _calls(self, number: int, now: int) -> tuple[list[list[BucketRecord]], int]:
        """Return the calls of a step on each rank, and when it ends."""
        found: list[list[BucketRecord]] = [[] for _ in range(self.ranks)]
        slots = self.slots()
        for i in (
            *(range(self.usual, len(slots)) if number in self.odd else ()),
            *range(self.usual),
        ):
            late = (self.late_ms.get(rank, 0.0) for rank in range(self.ranks))
            came = [now + int((self.compute_ms + ms) * MS) for ms in late]
            codec = int(self.codec_ms * MS) if slots[i].collective == "reduce_scatter" else 0
            arrived = max(came) + codec + self._takes_ns(number, slots[i])
            now = arrived + codec
            for calls, ready in zip(found, came, strict=True):
                calls.append(self._call(number, i, slots[i], (ready, ready + codec, arrived, now)))
        return found, now

    def _sends(self, unit: Unit) -> int:
        coded = self.codec_ms and unit.collective == "reduce_scatter"
        return int(self._payload(unit) * (self.sends if coded else 1))

    def _bus_bytes(self, unit: Unit) -> float | None:
        return bus_bytes(unit.collective, self._sends(unit), self.shards)

    def _takes_ns(self, number: int, unit: Unit) -> int:
        ns = self.latency_ms * MS + (self._bus_bytes(unit) or 0.0) / self.bytes_per_second * 1e9
        is_slow = self.slow_every and number % self.slow_every == 0
        return int(ns * (10 if is_slow else 1))

    def _call(
        self, number: int, i: int, unit: Unit, times: tuple[int, int, int, int]
    ) -> BucketRecord:
        ready, encoded, arrived, done = times
        call, sent = self.bucket(number, i, unit, (encoded, arrived)), self._sends(unit)
        stages = [replace(call.stages[0], wire_bytes=sent)]
        if encoded > ready:
            stages.insert(0, Stage(name="compress", start_ns=ready, end_ns=encoded))
            stages.append(Stage(name="decompress", start_ns=arrived, end_ns=done))
        error = None
        if self.error is not None and number % 10 == 0 and unit.collective == "reduce_scatter":
            error = ErrorRecord(
                relative_l2=self.error, cosine=self.cosine, max_absolute=0.1, flipped_share=0.0,
                reference_l2=3.0,
            )  # fmt: skip
        is_unseen = unit.name in self.unseen and unit.collective == "reduce_scatter"
        return replace(
            call, ready_ns=ready, launched_ns=done, done_ns=done, stages=tuple(stages),
            wire_bytes=sent, bus_bytes=self._bus_bytes(unit), is_last=i == self.usual - 1,
            exposed_ns=None if is_unseen else int((done - ready) * (1 - self.hidden)),
            rebuild=int(bool(self.odd) and number >= min(self.odd)), error=error,
            checked=error is not None,
        )  # fmt: skip

    def _seen(self, completed: CompletedStep) -> CompletedStep:
        step, calls = completed
        if any(call.exposed_ns is None for call in calls):
            step = replace(step, exposed_ns=None)
        if not self.on_device:
            return step, calls
        first = step.first_ready_ns
        return replace(step, clock="device"), tuple(_on_device(call, first) for call in calls)


def _on_device(call: BucketRecord, first: int) -> BucketRecord:
    stages = tuple(
        replace(stage, start_ns=stage.start_ns - first, end_ns=stage.end_ns - first)
        for stage in call.stages
    )
    ready, done = call.ready_ns - first, call.done_ns - first
    span = DeviceSpan(ready_ns=ready, done_ns=done, stages=stages)
    return replace(call, device_type="cuda", stages=(), device=span)


def write_sharded(job: ShardedJob, folder: Path, *, files: int | None = None) -> None:
    """Write the files of a job's first ranks."""
    for rank, steps in enumerate(job.completed()[:files]):
        records = [job.run(rank), *job.assignments(), *job.clock_records(rank)]
        write_ranks(folder, {rank: rank_file(records, steps).decode()})
