"""One model's settled steps as dense arrays: (rank, step) and (rank, step, bucket).

    Run --settled_steps--> RankRows of each rank --> StepArrays: float64, NaN where unknown

Which steps count ``counts.py`` says; bytes and errors are those of checked steps too.  Times of day
count from the first bucket of their step on any rank, in rank 0's clock, so that a double holds
them to the nanosecond.  An array is made when it is first asked for, and those that few ask for are
not kept.  What is asked of buckets is asked of ``detailed``, or of ``sample``, which have no place
for steps without buckets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np

from ...records import STAGES, AssignmentRecord, BucketLayout, ErrorRecord
from .columns import UNKNOWN, Bools, Floats, Ints, RankTrack
from .counts import CHECKED, COUNTS, HANG, steps_of
from .rows import BucketRows, Column
from .run import Run, once
from .waits import Waits, process_groups, waits

MOST_UNKNOWN = 0.05
"""Share of buckets whose wait may be unknown where wire is told apart all the same."""


def middle(values: Floats, share: float = 0.5) -> float:
    """Return a percentile of what is known among ``values``, of any shape; NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(np.quantile(known, share, overwrite_input=True)) if known.size else float("nan")


def known(value: float) -> float | None:
    """Return a number; ``None`` in the place of NaN."""
    return None if math.isnan(value) else value


def known_middle(values: Floats, share: float = 0.5) -> float | None:
    """Return a percentile as ``middle`` does; ``None`` where nothing is known."""
    return known(middle(values, share))


class Spread(msgspec.Struct, frozen=True):
    """Median and 95th percentile."""

    p50: float
    p95: float


def spread(values: Floats) -> Spread | None:
    """Return the spread of what is known among ``values``; ``None`` where nothing is."""
    found = known_middle(values)
    return None if found is None else Spread(found, middle(values, 0.95))


def mean(values: Floats) -> float:
    """Return the mean of what is known among ``values``, of any shape; NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def sums(values: Floats) -> Floats:
    """Return the sums of what is known along the last axis; NaN where nothing is."""
    known = ~np.isnan(values)
    return np.where(known.any(axis=-1), np.nansum(values, axis=-1), np.nan)


def medians(values: Floats, axis: int) -> Floats:
    """Return the median of what is known along an axis; NaN where nothing is."""
    found: Floats = np.ma.median(np.ma.masked_invalid(values), axis=axis).filled(np.nan)
    return found


@dataclass(frozen=True, slots=True)
class RankRows:
    """Some rows of one rank: of its steps, and of its buckets, those of ``table``."""

    table: BucketRows
    steps: Bools
    buckets: Bools

    @property
    def track(self) -> RankTrack:
        """What the rank's files hold."""
        return self.table.track

    def of_steps(self, column: str) -> Ints:
        """Return a column of the steps."""
        found: Ints = getattr(self.track.steps, column)[self.steps]
        return found

    def of_buckets(self, column: str) -> Ints:
        """Return a column of the buckets."""
        return self.table.column(column)[self.buckets]

    def times(self, column: str, known: Bools) -> Floats:
        """Return a column of the buckets, NaN where its row in the table is not ``known``."""
        return np.where(known, self.table.column(column), np.nan)[self.buckets]

    def having(self, flag: str) -> Bools:
        """Return which of the buckets have a flag."""
        return self.track.buckets.having(flag)[self.buckets]

    @property
    def first_ready(self) -> Ints:
        """When the first bucket of each step was ready, in rank 0's clock."""
        return self.table.clock.common(self.of_steps("first_ready"))


class StepArrays:
    """What was measured of one model, in ns and bytes; R ranks, S steps, B buckets.

    B is 0, or some steps have no buckets, where the file's limit left them out.  Of ``ranks``,
    ``steps`` and ``buckets`` the arrays' axes are made; ``last`` is the bucket whose gradients come
    last.  ``rows``: of each rank those that count; ``every``: also of steps that were checked, or
    hung.
    """

    def __init__(
        self, run: Run, names: tuple[str, str], rebuild: int,
        rows: Sequence[RankRows], every: Sequence[RankRows],
    ) -> None:  # fmt: skip
        self._run, (self.model, self.hook) = run, names
        self.rebuild, self._rows, self._every = rebuild, rows, every
        self.ranks = [own.track.rank for own in rows]
        self.steps: Ints = np.unique(np.concatenate([x.of_steps("step") for x in rows]))
        self.buckets: Ints = np.unique(np.concatenate([x.of_buckets("bucket") for x in rows]))
        lasts = np.concatenate([x.of_buckets("bucket")[x.having("is_last")] for x in rows])
        self.last = int(lasts[-1]) if len(lasts) else max(self.buckets.tolist(), default=0)
        marks = (own.having(flag) for own in rows for flag in ("device", "untimed"))
        self.is_on_device = any(bool(one.any()) for one in marks)
        # Where a rank's rows stand in an array (R, S), and in one (B, R, S), flat.
        self._step_at, self._bucket_at = [], []
        for i, own in enumerate(rows):
            at = np.searchsorted(self.steps, own.of_buckets("step")) + i * len(self.steps)
            place = np.searchsorted(self.buckets, own.of_buckets("bucket"))
            self._bucket_at.append(place * (len(rows) * len(self.steps)) + at)
            at = np.searchsorted(self.steps, own.of_steps("step"))
            self._step_at.append(at + i * len(self.steps))

    @cached_property
    def detailed(self) -> StepArrays:
        """The steps that have buckets on any rank, where there are any.

        Arrays (R, S, B) are asked of these: of a long run the files have the buckets of few steps.
        """
        there = np.unique(np.concatenate([own.of_buckets("step") for own in self._rows]))
        if len(there) in (0, len(self.steps)):
            return self
        return self._of_rows(
            replace(own, steps=own.steps & np.isin(own.track.steps.step, there))
            for own in self._rows
        )

    @cached_property
    def sample(self) -> StepArrays:
        """Those of these steps whose buckets stand for all (``StepColumns.standing_for``)."""
        found = []
        for own in self._rows:
            steps = own.track.steps
            those = steps.step[steps.standing_for(own.steps)]
            is_in = np.isin(own.track.buckets.step, those)
            found.append(replace(own, buckets=own.buckets & is_in))
        pairs = zip(found, self._rows, strict=True)
        is_all = all(np.array_equal(one.buckets, own.buckets) for one, own in pairs)
        return (self if is_all else self._of_rows(found)).detailed

    @cached_property
    def groups(self) -> list[Ints]:
        """The places of ranks that wait for each other: those of a process group of DDP's."""
        of_rows, _ = process_groups(self._run)
        own = [of_rows[x.table.i][x.buckets][:1].sum() for x in self._every]
        of = np.array(own) * (not self.is_sharded)
        return [np.flatnonzero(of == one) for one in np.unique(of)]

    def of_each_group(self) -> list[StepArrays]:
        """Return the arrays of the ranks of each of ``groups``."""
        if len(self.groups) == 1:
            return [self]
        names, rows = (self.model, self.hook), (self._rows, self._every)
        parts = ([[every[i] for i in own] for every in rows] for own in self.groups)
        return [StepArrays(self._run, names, self.rebuild, *part) for part in parts]

    def _of_rows(self, rows: Iterable[RankRows]) -> StepArrays:
        names = self.model, self.hook
        return StepArrays(self._run, names, self.rebuild, [*rows], self._every)

    def _steps(self, values: Callable[[RankRows], Ints | Floats]) -> Floats:
        """Return what ``values`` gives for the steps of each rank, (R, S)."""
        found = np.full((len(self.ranks), len(self.steps)), np.nan)
        for at, own in zip(self._step_at, self._rows, strict=True):
            found.flat[at] = values(own)
        return found

    def _buckets(self, values: Callable[[RankRows], Ints | Floats]) -> Floats:
        """Return what ``values`` gives for the buckets of each rank, (R, S, B).

        Those of one bucket lie side by side, since most medians are of one bucket.
        """
        found = np.full((len(self.buckets), len(self.ranks), len(self.steps)), np.nan)
        for at, own in zip(self._bucket_at, self._rows, strict=True):
            found.reshape(-1)[at] = values(own)
        return np.moveaxis(found, 0, -1)

    def by_step(self, column: str) -> Floats:
        """Return a column of the steps, (R, S)."""
        return self._steps(lambda own: _known(own.of_steps(column)))

    def in_flight(self, column: str) -> Floats:
        """Return a column of the steps that is known of timed ones alone, (R, S)."""

        def of(own: RankRows) -> Floats:
            is_timed = own.track.steps.timed(own.steps)[own.steps]
            return np.where(is_timed, _known(own.of_steps(column)), np.nan)

        return self._steps(of)

    def column(self, name: str) -> Floats:
        """Return a column of the buckets, (R, S, B)."""
        return self._buckets(lambda own: _known(own.of_buckets(name)))

    def of_each_bucket(self, column: Column, *, with_checked: bool) -> list[Floats]:
        """Return a column of the bucket table, of each bucket on all ranks and steps, flat."""
        of = self._of_rows(self._every) if with_checked else self
        values = of._buckets(
            lambda own: np.ma.filled(column.values(own.table)[own.buckets].astype(float), np.nan)
        )
        return [values[..., b].ravel() for b in np.searchsorted(of.buckets, self.buckets).tolist()]

    @cached_property
    def period(self) -> Floats:
        """From a step's first bucket to the next one's, (R, S)."""
        return self.by_step("period")

    @cached_property
    def job_period(self) -> Floats:
        """From a step's first bucket on any rank to the next one's on any rank, (S,).

        A rank that comes late to a step has the long period in the step before, those that wait for
        it in the step itself: no mean or median of two ranks tells which of the two steps is long.
        """
        begun = self._steps(lambda own: own.first_ready - self._origin_of(own.of_steps("step")))
        found: Floats = np.fmin.reduce(begun + self.period, axis=0)
        return found

    @cached_property
    def exposed(self) -> Floats:
        """Communication that backward did not hide, (R, S)."""
        return self.by_step("exposed")

    @cached_property
    def is_sharded(self) -> bool:
        """Whether the model is under FSDP2."""
        return any(bool(x.track.steps.having("sharded")[x.steps].any()) for x in self._every)

    @cached_property
    def layout(self) -> AssignmentRecord | None:
        """The newest layout of this rebuild, of the lowest rank that has one."""
        every = (one for own in self._rows for one in reversed(own.track.records.assignments))
        mine = (one for one in every if (one.model, one.rebuild) == (self.model, self.rebuild))
        return next(mine, None)

    @cached_property
    def entries(self) -> dict[int, BucketLayout]:
        """What the layout says of each bucket, by its number."""
        return {one.bucket: one for one in (self.layout.buckets if self.layout else ())}

    @cached_property
    def communication(self) -> Floats:
        """With at least one bucket under way, (R, S); NaN where nothing was."""
        communication = self.in_flight("communication")
        return np.where(communication > 0, communication, np.nan)

    @cached_property
    def _origin(self) -> Ints:
        """When the first bucket was ready on any rank, by rank 0's clock, (S,)."""
        origin: Ints = np.full(len(self.steps), np.iinfo(np.int64).max)
        for own in self._rows:
            place = np.searchsorted(self.steps, own.of_steps("step"))
            np.minimum.at(origin, place, own.first_ready)
        return origin

    def _origin_of(self, step: Ints) -> Ints:
        return self._origin[np.searchsorted(self.steps, step)]

    @cached_property
    def called(self) -> Floats:
        """When the hook was called, (R, S, B)."""
        return self._buckets(
            lambda own: (
                own.table.clock.common(own.of_buckets("called"))
                - self._origin_of(own.of_buckets("step"))
            )
        )

    @cached_property
    def uncertainty(self) -> Floats:
        """By how much ``called`` may be off beside another rank's, (R, S, B)."""
        return self._buckets(
            lambda own: _known(own.table.clock.uncertainty(own.of_buckets("called")))
        )

    def delays(self, of: Bools) -> Floats:
        """Return the median ns by which each rank has a bucket ready after the first one, (R, B).

        B: the buckets that ``of`` tells.  NaN for a rank whose clock nobody measured, and for all
        where fewer than two are left: a rank that is alone in a step, as where the others have run
        out of data, is after nobody.
        """
        called = np.where(np.isnan(self.uncertainty[..., of]), np.nan, self.called[..., of])
        for own in self.groups:
            alone = np.count_nonzero(~np.isnan(called[own]), axis=0) < 2
            called[own] -= np.where(alone, np.nan, np.fmin.reduce(called[own], axis=0))
        return medians(called, axis=1)

    @cached_property
    def ready(self) -> Floats:
        """When the gradients were there, in the clock that tells the truth of them, (R, S, B)."""
        return self.called + self._buckets(lambda own: own.times("ready_after", own.table.placed))

    @cached_property
    def done(self) -> Floats:
        """When the result was there, by the clock of ``ready``, (R, S, B)."""
        return self.called + self._buckets(lambda own: own.times("done_after", own.table.timed))

    @cached_property
    def first_ready(self) -> Floats:
        """When the first bucket was ready, (R, S)."""
        found: Floats = np.fmin.reduce(self.ready, axis=2, initial=np.nan)
        return found

    @cached_property
    def last_ready(self) -> Floats:
        """When the last bucket was ready, (R, S)."""
        found: Floats = np.fmax.reduce(self.ready, axis=2, initial=np.nan)
        return found

    @cached_property
    def stages(self) -> dict[str, Floats]:
        """Time in each stage that occurs, (R, S, B), in their order; 0 where a bucket has none."""
        every = (
            x.track.stages.name[np.repeat(x.buckets, x.track.buckets.stages)] for x in self._rows
        )

        def of(name: str) -> Floats:
            ns = self._buckets(lambda own: own.track.time_in(name)[own.buckets])
            ns[np.isnan(self.done)] = np.nan
            return ns

        occur = np.unique(np.concatenate([*every])).tolist()
        return {STAGES[i]: of(STAGES[i]) for i in occur}

    @property
    def waits(self) -> Waits:
        """What of the wire stages was waiting for the last rank."""
        return waits(self._run, self.model)

    @cached_property
    def waited(self) -> Floats:
        """How long each bucket waited on the wire, (R, S, B)."""
        return self._buckets(lambda own: _known(own.table.waited.ns[own.buckets]))

    @property
    def wait_unknown(self) -> str | None:
        """Why no bucket's wait is known, a clause; ``None`` where one is."""
        if self.waits.why_unknown is None and not self._unknown_waits < 1:
            return "no collective had all ranks in it at once"
        return self.waits.why_unknown

    @property
    def split_unknown(self) -> str | None:
        """Why wire is not told apart into wait and transfer in what steps are made of, a clause."""
        if self.wait_unknown is None and self._unknown_waits > MOST_UNKNOWN:
            return "the files do not have all ranks of each collective"
        return self.wait_unknown

    @cached_property
    def _unknown_waits(self) -> float:
        """Of the buckets that were on the wire, the share whose wait is not known."""
        known, unknown = 0, 0
        for own in self._rows:
            is_known = own.table.waited.ns[own.buckets] != UNKNOWN
            known += int(is_known.sum())
            unknown += int((~is_known & (own.table.wire_ns[own.buckets] > 0)).sum())
        if known:
            return unknown / (known + unknown)
        return float(unknown > 0 or len(self.ranks) > 1)  # the only rank of a job waits for nobody

    @property
    def lengths(self) -> Floats:
        """How long the steps with buckets took, (S,): the median of their ranks' periods."""
        return np.where(self.has_times, medians(self.period, axis=0), np.nan)

    @property
    def has_times(self) -> Bools:
        """Which steps have a bucket that was timed, (S,)."""
        return np.asarray((~np.isnan(self.done)).any(axis=(0, 2)))

    @property
    def typical(self) -> int | None:
        """The step whose length is nearest to the median, of those that stand for all.

        The first one where no length is known; ``None`` where none has its buckets in the files.
        """
        of = self.sample
        if not of.has_times.any():
            return None
        if np.isnan(of.lengths).all():
            return int(of.steps[np.argmax(of.has_times)])
        return int(of.steps[np.nanargmin(np.abs(of.lengths - middle(of.lengths)))])

    def sent(self) -> Floats:
        """Return the wire bytes of all steps, checked ones too, flat."""
        return _known(np.concatenate([own.of_steps("wire_bytes") for own in self._every]))

    def probes(self) -> Iterator[tuple[int, int, ErrorRecord]]:
        """Yield step and bucket of each probe, and what it found."""
        for own in self._every:
            columns = own.track.buckets
            for row, error in sorted(own.track.errors.items()):
                if own.buckets[row]:
                    yield int(columns.step[row]), int(columns.bucket[row]), error

    def errors_by_step(self) -> dict[int, list[float]]:
        """Return the relative L2 errors that probes found, by step."""
        found: dict[int, list[float]] = {}
        for step, _, error in self.probes():
            if error.relative_l2 is not None:
                found.setdefault(step, []).append(error.relative_l2)
        return found

    def rows_of_rank(self, i: int) -> tuple[RankTrack, Ints, Ints, Ints]:
        """Return the track of the ``i``-th rank, rows in its ``buckets``, their place (S, B)."""
        rows, at = np.flatnonzero(self._rows[i].buckets), self._bucket_at[i]
        count = len(self.steps)
        return self._rows[i].track, rows, at % count, at // (count * len(self.ranks))


def _known(values: Ints) -> Floats:
    return np.where(values == UNKNOWN, np.nan, values.astype(np.float64))


@once
def settled_steps(run: Run, model: str) -> StepArrays | None:
    """Return the arrays of a model's steps that count; ``None`` where none ever did."""
    every = steps_of(run, model)
    last = max(
        int(track.steps.rebuild[rows & np.isin(why, (COUNTS, HANG))].max(initial=-1))
        for track, rows, why in every
    )
    if last < 0:
        return None
    found, settled_rows = [], []
    for i, (track, rows, why) in enumerate(every):
        steps, settled = rows & (why == COUNTS), rows & np.isin(why, (COUNTS, CHECKED, HANG))
        buckets = _buckets_of(track, track.steps.step[settled], model, last)
        out = np.isin(track.buckets.step, track.steps.step[settled & ~steps])
        settled_rows.append(RankRows(BucketRows(run, i), settled, buckets))
        found.append(replace(settled_rows[i], steps=steps, buckets=buckets & ~out))
    own = (dict(t.models) for t in run.tracks)  # of a rank's hooks the last one
    hook = " and ".join(dict.fromkeys(hooks[model] for hooks in own if model in hooks))
    return StepArrays(run, (model, hook), last, found, settled_rows)


def _buckets_of(track: RankTrack, steps: Ints, model: str, last: int) -> Bools:
    columns = track.buckets
    odd = columns.having("join_dummy") | columns.having("warmup") | columns.having("exception")
    in_time = columns.having("sharded") | (columns.rebuild >= last)
    return track.is_of(columns, model) & in_time & ~odd & np.isin(columns.step, steps)
