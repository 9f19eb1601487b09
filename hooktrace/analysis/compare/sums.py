"""What a comparison needs of one rank's files, and how two such parts become one.

    files of one rank --sum_up, a pure function--> RunSums --+
    files of another  -----------------------------> RunSums --+--merged in any order--> RunSums

Of each step sums over the ranks and how many they are of, in the tables of ``summaries.race``;
facts of runs and models are unions, minima and maxima.  No rank knows of another here, so all wire
time is taken for transfer, which ``from_sums.py`` does not hand on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...records import LayoutRecord, Options
from ..report.settled import settled_steps
from ..report.step_arrays import Floats, StepArrays, middle
from ..report.step_parts import KINDS, step_parts
from ..summaries.race import Table
from ..summaries.rank_summary import merged_ranks
from ..summaries.summary import Job, both
from ..timeline import Bools, Ints, RankClock, RankTrack, Timeline, bucket_keys
from .measure import bucket_bytes, by_rank, layouts_of

Parameters = tuple[tuple[str, tuple[int, ...]], ...]


class SetUp(NamedTuple):
    """What the layout of a rank says; of several ranks the last one's that has a layout."""

    has_layout: bool
    rank: int
    hook: str
    options: Options
    bucket_cap_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSums:
    """One model's settled steps, of its last generation alone; of a sharded model, of all.

    ``steps``, ``probed``: which ones, also where tables have every n-th only.  ``by_step``: sums of
    what ``measure.by_rank`` and ``step_parts`` say, and of how many ranks.  ``by_bucket``: exposed
    ns that each bucket adds, by ``bucket_keys``.  ``errors``: of each probed step their sum and
    count.  ``gradient_bytes``: how often a rank's step has so many.  ``sizes``, ``parameters``: by
    bucket; parameters with the rank that says so.  ``units``: of a sharded model, what each bucket
    is.  ``sent``: the least and most bytes of a step.
    """

    setup: SetUp
    generation: int
    is_on_device: bool
    units: dict[int, str]
    is_sharded: bool
    steps: Ints
    probed: Ints
    by_step: Table
    by_bucket: Table
    errors: Table
    gradient_bytes: dict[float, int]
    sizes: dict[int, int]
    parameters: dict[int, tuple[int, Parameters]]
    sent: tuple[float, float]

    def merged(self, other: ModelSums) -> ModelSums:
        """Return the sums of both's ranks; of an older generation nothing is left."""
        if self.generation != other.generation and not self.is_sharded:
            return max(self, other, key=lambda one: one.generation)
        return ModelSums(
            setup=max(self.setup, other.setup, key=lambda one: one[:2]),
            generation=max(self.generation, other.generation),
            is_on_device=self.is_on_device or other.is_on_device,
            units=self.units | other.units,
            is_sharded=self.is_sharded or other.is_sharded,
            steps=np.union1d(self.steps, other.steps),
            probed=np.union1d(self.probed, other.probed),
            by_step=self.by_step.merged(other.by_step),
            by_bucket=self.by_bucket.merged(other.by_bucket),
            errors=self.errors.merged(other.errors),
            gradient_bytes=both(self.gradient_bytes, other.gradient_bytes, int.__add__),
            sizes=both(self.sizes, other.sizes, max),
            parameters=both(self.parameters, other.parameters, max),
            sent=(min(self.sent[0], other.sent[0]), max(self.sent[1], other.sent[1])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSums:
    """Some ranks of a run; an empty one changes nothing.

    ``open``: ranks whose file has no end.  ``named``: models that each rank's files name.
    ``hung``: by model the steps that hung, of which no rank's times count.
    """

    ranks: frozenset[int] = frozenset()
    other_runs: frozenset[int] = frozenset()
    unaligned: frozenset[int] = frozenset()
    open: frozenset[int] = frozenset()
    hosts: frozenset[str] = frozenset()
    named: dict[int, tuple[str, ...]] = field(default_factory=dict)
    hung: dict[str, frozenset[int]] = field(default_factory=dict)
    models: dict[str, ModelSums] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All models, in order of appearance, from the lowest rank on."""
        return tuple(dict.fromkeys(n for rank in sorted(self.named) for n in self.named[rank]))

    def merged(self, other: RunSums) -> RunSums:
        """Return the sums of both's ranks."""
        return RunSums(
            ranks=self.ranks | other.ranks,
            other_runs=self.other_runs | other.other_runs,
            unaligned=self.unaligned | other.unaligned,
            open=self.open | other.open,
            hosts=self.hosts | other.hosts,
            named=self.named | other.named,
            hung=both(self.hung, other.hung, frozenset.union),
            models=both(self.models, other.models, ModelSums.merged),
        )


def sum_up(ranks: Sequence[Sequence[str | os.PathLike[str]]], job: Job) -> RunSums:
    """Return the sums of some ranks, given the files of each; one rank at a time is in memory."""
    return merged_ranks(ranks, job, RunSums(), of_track)


def of_track(track: RankTrack, job: Job) -> RunSums:
    """Return what is there of one rank that was read."""
    run, mine = track.records.run, frozenset({track.rank})
    if run is not None and job.run is not None and run.run_id != job.run.run_id:
        return RunSums(other_runs=mine)
    clock = RankClock(run, track.records.clocks, job.reference)
    timeline = Timeline([track], [clock], [])
    arrays = {name: settled_steps(timeline, name) for name in timeline.models}
    hung: dict[str, frozenset[int]] = {}
    for hang in track.records.hangs:
        hung[hang.model] = hung.get(hang.model, frozenset()) | {hang.step}
    return RunSums(
        ranks=mine,
        unaligned=frozenset() if clock.is_known else mine,
        open=frozenset() if track.records.closed else mine,
        hosts=frozenset() if run is None else frozenset({run.host}),
        named={track.rank: tuple(timeline.models)},
        hung=hung,
        models={name: _model(timeline, a, job) for name, a in arrays.items() if a is not None},
    )


def _model(timeline: Timeline, arrays: StepArrays, job: Job) -> ModelSums:
    rank, layouts, sent = arrays.ranks[0], layouts_of(timeline, arrays), arrays.sent()
    gradients, counts = np.unique(_known(arrays.by_step("gradient_bytes")), return_counts=True)
    by_step, by_bucket = _tables(timeline, arrays, arrays.steps % job.every == 0)
    return ModelSums(
        setup=_setup(arrays, layouts),
        generation=arrays.generation,
        is_on_device=arrays.is_on_device,
        units={b: str(unit) for b, unit in arrays.units.items()},
        is_sharded=arrays.is_sharded,
        steps=arrays.steps,
        probed=np.array(sorted(arrays.probed), dtype=np.int64),
        by_step=by_step,
        by_bucket=by_bucket,
        errors=_errors(arrays),
        gradient_bytes=dict(zip(gradients.tolist(), counts.tolist(), strict=True)),
        sizes=dict(zip(arrays.buckets.tolist(), bucket_bytes(arrays), strict=True)),
        parameters={b.bucket: (rank, b.parameters or ()) for x in layouts for b in x.buckets},
        sent=(_or(middle(sent, 0.0), np.inf), _or(middle(sent, 1.0), -np.inf)),
    )


def _setup(arrays: StepArrays, layouts: Sequence[LayoutRecord]) -> SetUp:
    (rank,), hook = arrays.ranks, arrays.hook
    if not layouts:
        return SetUp(False, rank, hook, (), None)
    return SetUp(True, rank, hook, layouts[-1].hook_options, layouts[-1].bucket_cap_bytes)


def _known(values: Floats) -> Floats:
    found: Floats = values[~np.isnan(values)]
    return found


def _or(value: float, nobody: float) -> float:
    return nobody if np.isnan(value) else value


def _tables(timeline: Timeline, arrays: StepArrays, kept: Bools) -> tuple[Table, Table]:
    parts = step_parts(arrays)
    columns = {name: values[0] for name, values in by_rank(arrays).items()}
    columns |= {f"{name} count": (~np.isnan(own)).astype(float) for name, own in columns.items()}
    columns |= {
        "whole": parts.known.astype(float),
        "whole period": parts.period,
        "whole exposed": parts.exposed,
        "compress in calls": parts.compress,
        "calls": parts.calls + parts.compress,
        **{f"in {kind}": own for kind, own in zip(KINDS, parts.busy_in, strict=True)},
    }
    added = np.nan_to_num(parts.exposed_in.sum(axis=0))[kept]
    keys = bucket_keys(arrays.steps[kept][:, None], arrays.buckets[None, :])
    by_step = {name: np.nan_to_num(values)[kept] for name, values in columns.items()}
    return Table(arrays.steps[kept], by_step), Table(keys.ravel(), {"added": added.ravel()})


def _errors(arrays: StepArrays) -> Table:
    by_step = sorted(arrays.errors_by_step().items())
    columns = {
        "sum": np.array([sum(errors) for _, errors in by_step], dtype=np.float64),
        "count": np.array([len(errors) for _, errors in by_step], dtype=np.float64),
    }
    return Table(np.array([step for step, _ in by_step], dtype=np.int64), columns)
