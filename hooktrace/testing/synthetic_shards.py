"""Records of a made-up sharded job (FSDP2) on gloo; no torch, always the same.

    ShardedJob --sharded_steps--> records by step and rank --write_sharded_job--> files

Every collective is synchronous: a rank stands still from its own call to the end, which comes some
time after the last rank of the collective's *group* has called.  With ``replicas`` a unit's
parameters are gathered and its gradients scattered within a replica, and reduced over the replicas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from ..records import (
    AssignmentRecord,
    BucketLayout,
    BucketRecord,
    ClockRecord,
    CompletedStep,
    Members,
    Parameter,
    RunInfo,
    Stage,
    Unit,
)
from ..records.intervals import bus_bytes
from .synthetic import rank_file, run_of, step_of, write_rank

_MS = 1_000_000
_REDUCE_MS, _OPTIMIZER_MS = 1.5, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedJob:
    """What the job is like; steps count from 1, at ``start_ns`` of every rank's clock.

    ``units``: the root first, whose parameters are kept from forward to backward.  ``bytes``: of
    a unit's whole parameters.  ``gather_ms``, ``scatter_ms``: what a collective takes once all
    ranks are there; ``compute_ms`` a unit, forward or backward.  ``micro_steps``: passes of a step,
    of which the last one reduces gradients.  ``late_ms``: by rank, how much longer it computes
    before the ``late_at``-th collective of a step, from 0.  ``clocks``: whether the ranks measured
    theirs.  ``tells_members``: whether records say who is in a collective.
    """

    ranks: int = 2
    replicas: int = 1
    steps: int = 10
    model: str = "sharded"
    hook: str = "fully_shard"
    units: tuple[str, ...] = ("<root>", "blocks.0", "blocks.1", "blocks.2")
    bytes: int = 4_000_000
    gather_ms: float = 1.0
    scatter_ms: float = 2.0
    compute_ms: float = 3.0
    micro_steps: int = 1
    late_ms: dict[int, float] = field(default_factory=dict)
    late_at: int = 0
    clocks: bool = True
    tells_members: bool = True
    start_ns: int = 10 * _MS
    wall_ns: int = 1_795_000_000_000 * _MS

    @property
    def shards(self) -> int:
        """How many ranks share a unit's parameters."""
        return self.ranks // self.replicas

    def run(self, rank: int) -> RunInfo:
        """Return the run as a rank sees it."""
        return run_of("sharded", rank, self.ranks, self.wall_ns)

    def clock_records(self, rank: int) -> list[ClockRecord]:
        """Return the measurement of a rank's clock, which is right; none of rank 0's."""
        clock = ClockRecord(
            time_ns=self.start_ns, offset_ns=0, uncertainty_ns=20_000, round_trip_ns=40_000,
            pings=32,
        )  # fmt: skip
        return [clock] if self.clocks and rank else []

    def slots(self) -> list[Unit]:
        """Return the collectives of a step in the order in which they begin: the layout."""
        return [unit for _, unit in self.schedule()]

    def layout(self, rank: int = 0) -> AssignmentRecord:
        """Return the layout of the units on a rank, a weight in each."""
        return AssignmentRecord(
            model=self.model, hook=self.hook, rebuild=0, step=1, time_ns=self.start_ns,
            buckets=tuple(self._entry(i, unit, rank) for i, unit in enumerate(self.slots())),
        )  # fmt: skip

    def _entry(self, index: int, unit: Unit, rank: int) -> BucketLayout:
        size = self._payload(unit)
        name = "weight" if unit.name == "<root>" else f"{unit.name}.weight"
        return BucketLayout(
            bucket=index, dtype="float32", device_type="cpu", numel=size // 4, gradient_bytes=size,
            parameters=(Parameter(name, (self.bytes // 4,)),), unit=unit,
            members=self.members(unit, rank),
        )  # fmt: skip

    def _payload(self, unit: Unit) -> int:
        return self.bytes if unit.collective == "reduce_scatter" else self.bytes // self.shards

    def schedule(self) -> list[tuple[float, Unit]]:
        """Return the collectives of a step, each with the ms that are computed before it."""
        found: list[tuple[float, Unit]] = []
        root, *others = self.units
        for turn in range(self.micro_steps):
            ahead = _OPTIMIZER_MS if not turn else self.compute_ms
            for name in self.units:
                unit = Unit(name=name, collective="all_gather", phase="forward", repeat=turn)
                found.append((ahead, unit))
                ahead = self.compute_ms
            for name in [*reversed(others), root]:
                if name != root:
                    unit = Unit(name=name, collective="all_gather", phase="backward", repeat=turn)
                    found.append((ahead, unit))
                    ahead = self.compute_ms
                if turn == self.micro_steps - 1:
                    unit = Unit(name=name, collective="reduce_scatter", phase="backward")
                    found.append((ahead, unit))
                    if self.replicas > 1:
                        unit = Unit(name=name, collective="all_reduce", phase="backward")
                        found.append((0.0, unit))
        return found

    def group(self, unit: Unit, rank: int) -> range:
        """Return the ranks with which a rank is in a unit's collective."""
        if unit.collective == "all_reduce":
            return range(rank % self.shards, self.ranks, self.shards)
        first = rank - rank % self.shards
        return range(first, first + self.shards)

    def members(self, unit: Unit, rank: int) -> Members | None:
        """Return the same as records say it."""
        of = self.group(unit, rank)
        return (of.start, of[-1] + 1, of.step) if self.tells_members else None

    def takes_ns(self, unit: Unit) -> int:
        """Return how long a collective takes once all of its ranks are there."""
        ms = {"all_gather": self.gather_ms, "reduce_scatter": self.scatter_ms}
        return int(ms.get(unit.collective, _REDUCE_MS) * _MS)

    def bucket(
        self, step: int, index: int, unit: Unit, times: tuple[int, int], rank: int = 0
    ) -> BucketRecord:
        """Return the record of a collective on a rank; ``times``: called, over."""
        start, end = times
        size, group = self._payload(unit), len(self.group(unit, 0))
        wire = Stage(
            name="wire", start_ns=start, end_ns=end, collective=unit.collective, wire_bytes=size,
            dtype="float32",
        )  # fmt: skip
        return BucketRecord(
            model=self.model, hook=self.hook, rebuild=0, step=step, bucket=index,
            is_last=index == len(self.slots()) - 1, dtype="float32", device_type="cpu",
            numel=size // 4, gradient_bytes=size, parameter_count=1, ready_ns=start,
            launched_ns=end, done_ns=end, stages=(wire,), wire_bytes=size,
            bus_bytes=bus_bytes(unit.collective, size, group), unit=unit, exposed_ns=end - start,
            members=self.members(unit, rank),
        )  # fmt: skip


def step_of_units(calls: Sequence[BucketRecord], previous_period_ns: int | None) -> CompletedStep:
    """Return the step of a rank's calls, in the order in which they began."""
    waited, is_checked = sum(c.exposed_ns or 0 for c in calls), any(c.checked for c in calls)
    step = step_of(calls, previous_period_ns)
    return replace(step, exposed_ns=waited, sharded=True, checked=is_checked), tuple(calls)


def sharded_steps(job: ShardedJob) -> Iterator[list[CompletedStep]]:
    """Yield each step as its ranks recorded it, in their order."""
    now = [job.start_ns] * job.ranks
    before: list[int | None] = [None] * job.ranks
    for step in range(1, job.steps + 1):
        calls: list[list[BucketRecord]] = [[] for _ in now]
        for index, (compute_ms, unit) in enumerate(job.schedule()):
            is_late = index == job.late_at
            more = [job.late_ms.get(rank, 0.0) if is_late else 0.0 for rank in range(job.ranks)]
            began = [at + int((compute_ms + ms) * _MS) for at, ms in zip(now, more, strict=True)]
            for rank, start in enumerate(began):
                group = job.group(unit, rank)
                now[rank] = max(began[other] for other in group) + job.takes_ns(unit)
                calls[rank].append(job.bucket(step, index, unit, (start, now[rank]), rank))
        firsts = [own[0].ready_ns for own in calls]
        periods = [None if b is None else at - b for at, b in zip(firsts, before, strict=True)]
        before = [*firsts]
        yield [step_of_units(own, period) for own, period in zip(calls, periods, strict=True)]


def write_sharded_job(job: ShardedJob, logdir: Path) -> None:
    """Write each rank's record file where an exporter would."""
    steps = list(sharded_steps(job))
    for rank in range(job.ranks):
        records = [job.run(rank), job.layout(rank), *job.clock_records(rank)]
        write_rank(logdir, rank, rank_file(records, [ranks[rank] for ranks in steps]))
