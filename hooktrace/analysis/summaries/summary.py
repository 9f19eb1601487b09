"""What is kept of ranks when their files are closed, and how two such summaries become one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from ...records import RunInfo, Unit
from ..report.facts import AnomalyFacts, BucketError, RankFacts
from ..report.provenance import ModelSource
from .race import Table
from .sketch import Sketch

K = TypeVar("K")
V = TypeVar("V")


class Mergeable(Protocol):
    """What a pass over some ranks leaves: of which ranks, and which models their files name."""

    @property
    def ranks(self) -> frozenset[int]:
        """Those of which there are files of this run."""

    @property
    def other_runs(self) -> frozenset[int]:
        """Those whose files are of another."""

    @property
    def names(self) -> Collection[str]:
        """All models."""

    def merged(self: M, other: M, /) -> M:
        """Return the same of both's ranks."""


M = TypeVar("M", bound=Mergeable)


class Job(NamedTuple):
    """What a rank has to know of the others: which run is meant, and rank 0's clock.

    ``run``: the newest, as its lowest rank has it; files of others are left out.  ``reference``:
    rank 0's own.
    ``every``: of how many steps one is kept in tables by step, by its number; 1: all.
    """

    run: RunInfo | None
    reference: RunInfo | None
    every: int = 1

    @property
    def origin_ns(self) -> int:
        """From when sums of times count, in rank 0's clock: they stay exact in a double."""
        return 0 if self.reference is None else self.reference.host_anchor_ns


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank's own numbers, exact.

    ``facts``: without the lag, which is known once all ranks are merged.  By bucket: ``called``:
    how often, and the sum of the times, ns after ``Job``'s origin; ``calls``: what the hook's call
    takes in the mean.
    """

    facts: RankFacts
    called: dict[int, tuple[int, float]]
    calls: dict[int, float]


@dataclass(frozen=True, slots=True)
class Errors:
    """Probes of one bucket: errors, cosines, how many, and the largest one's description."""

    sketch: Sketch
    cosines: Sketch
    worst: BucketError

    def merged(self, other: Errors) -> Errors:
        """Return the probes of both; ``worst.p50`` and its cosine stand for nothing."""
        most, least = sorted((self.worst, other.worst), key=lambda one: -one.most)
        worst = BucketError(
            p50=most.p50, most=most.most, cosine=most.cosine,
            count=most.count + least.count, worst=most.worst,
            has_feedback=most.has_feedback or least.has_feedback, is_local=most.is_local,
            by_design=most.by_design,
        )  # fmt: skip
        sketch = self.sketch.merged(other.sketch)
        return Errors(sketch, self.cosines.merged(other.cosines), worst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """What a sharded model has beside: which collective of which unit each bucket is.

    ``is_synchronous``: training waits for all of each.  ``is_whole``: all ranks are in each.
    ``whole_bytes``: as ``ModelFacts`` has it.  ``in_steps``: by bucket, in how many of all.
    """

    units: dict[int, Unit]
    is_synchronous: bool
    is_whole: bool
    whole_bytes: int | None
    in_steps: dict[int, float]

    def merged(self, other: Shards) -> Shards:
        """Return the same of both's ranks, without numbers that are other units on the other."""
        units = self.units | other.units
        unlike = {b for b, unit in self.units.items() if units[b] != unit}
        return Shards(
            units={b: unit for b, unit in units.items() if b not in unlike},
            is_synchronous=self.is_synchronous and other.is_synchronous,
            is_whole=self.is_whole and other.is_whole and not unlike,
            whole_bytes=self.whole_bytes or other.whole_bytes,
            in_steps=both(self.in_steps, other.in_steps, max),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """One model's settled steps, of its last generation alone; of a sharded model, of all.

    ``sketches``: by what they are of, those of a bucket by ``(name, bucket)``.  ``by_bucket`` and
    ``by_step``: tables over all ranks (``race.py``).  ``tails``: exposed ns that each bucket adds
    in each rank's ordinary steps.  ``steps``, ``source``: on the rank that has most.  ``shards``:
    of a sharded model.
    """

    model: str
    hook: str
    generation: int
    is_on_device: bool
    steps: int
    last: int
    widths: frozenset[float]
    parameters: dict[int, tuple[int, tuple[str, float] | None]]
    gradient_bytes: dict[int, int]
    sketches: dict[str | tuple[str, int], Sketch]
    by_bucket: Table
    by_step: Table
    tails: dict[int, float]
    errors: dict[int, Errors]
    ranks: dict[int, RankRow]
    source: ModelSource
    shards: Shards | None = None

    def merged(self, other: ModelSummary) -> ModelSummary:
        """Return the summary of both's ranks; of an older generation nothing is left."""
        if self.generation != other.generation and self.shards is None:
            return max(self, other, key=lambda one: one.generation)
        return ModelSummary(
            model=self.model,
            hook=self.hook,
            generation=max(self.generation, other.generation),
            is_on_device=self.is_on_device or other.is_on_device,
            steps=max(self.steps, other.steps),
            last=max(self.last, other.last),
            widths=self.widths | other.widths,
            parameters=other.parameters | self.parameters,
            gradient_bytes=both(self.gradient_bytes, other.gradient_bytes, max),
            sketches=both(self.sketches, other.sketches, Sketch.merged),
            by_bucket=self.by_bucket.merged(other.by_bucket),
            by_step=self.by_step.merged(other.by_step),
            tails=both(self.tails, other.tails, float.__add__),
            errors=both(self.errors, other.errors, Errors.merged),
            ranks=self.ranks | other.ranks,
            source=max(self.source, other.source, key=lambda one: one.seen),
            shards=self.shards.merged(other.shards)
            if self.shards and other.shards
            else self.shards or other.shards,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Some ranks of a run; an empty one changes nothing.

    ``ranks``: those of which there are files of this run.  ``missing``: sentences about ranks.
    ``models``: those with settled steps; ``names``: all.  ``memory``: the most bytes that each
    process which read had, by host and id.  ``begun``: when the first of the processes did.
    """

    ranks: frozenset[int] = frozenset()
    unaligned: frozenset[int] = frozenset()
    other_runs: frozenset[int] = frozenset()
    hung: frozenset[int] = frozenset()
    missing: dict[str, frozenset[int]] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    unsampled: frozenset[str] = frozenset()
    models: dict[str, ModelSummary] = field(default_factory=dict)
    anomalies: dict[tuple[str, str], AnomalyFacts] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    begun: tuple[str, ...] = ()

    def merged(self, other: Summary) -> Summary:
        """Return the summary of both's ranks."""
        return Summary(
            ranks=self.ranks | other.ranks,
            unaligned=self.unaligned | other.unaligned,
            other_runs=self.other_runs | other.other_runs,
            hung=self.hung | other.hung,
            missing=both(self.missing, other.missing, frozenset.union),
            names=self.names | other.names,
            unsampled=self.unsampled | other.unsampled,
            models=both(self.models, other.models, ModelSummary.merged),
            anomalies=both(self.anomalies, other.anomalies, _anomalies),
            memory=both(self.memory, other.memory, max),
            hosts=self.hosts | other.hosts,
            begun=tuple(sorted((*self.begun, *other.begun))[:1]),
        )


def both(one: Mapping[K, V], two: Mapping[K, V], merge: Callable[[V, V], V]) -> dict[K, V]:
    """Return what either has, and of what both have, what ``merge`` makes of it."""
    found = {**one, **two}
    return found | {key: merge(one[key], two[key]) for key in one.keys() & two.keys()}


def _anomalies(one: AnomalyFacts, two: AnomalyFacts) -> AnomalyFacts:
    return AnomalyFacts(
        kind=one.kind,
        count=one.count + two.count,
        first=min(one.first, two.first, key=lambda a: (a.step, a.rank or 0)),
        ranks=tuple(sorted({*one.ranks, *two.ranks})),
        buckets=tuple(sorted({*one.buckets, *two.buckets})),
        unit=min((one, two), key=lambda f: (f.first.step, f.first.rank or 0)).unit,
        units=tuple(dict.fromkeys((*one.units, *two.units))),
    )
