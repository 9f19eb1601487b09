"""One model's settled steps as dense arrays: (rank, step) and (rank, step, bucket).

    Timeline --rows of the last generation that count--> StepArrays: float64, NaN where unknown

Only steps that enter statistics are here: complete, not warm-up, not a shadow.  Times of day count
from the first bucket of their step on any rank, in rank 0's clock, so that a double holds them to
the nanosecond.  An array is made when it is first asked for, and those that few ask for are not
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...records import ErrorRecord
from ..timeline import STAGE_NAMES, UNKNOWN, Ints, RankClock, RankTrack, Timeline

Floats = npt.NDArray[np.float64]


def middle(values: Floats, share: float = 0.5) -> float:
    """Return a percentile of what is known among ``values``, of any shape; NaN where nothing is."""
    known = values[~np.isnan(values)]
    return float(np.quantile(known, share)) if known.size else float("nan")


def medians(values: Floats, axis: int) -> Floats:
    """Return the median of what is known along an axis; NaN where nothing is."""
    ordered = np.sort(values, axis=axis)  # NaN comes last
    known = np.expand_dims(np.count_nonzero(~np.isnan(values), axis=axis), axis)
    low, high = (
        np.take_along_axis(ordered, np.maximum(at, 0), axis)
        for at in ((known - 1) // 2, known // 2)
    )
    found: Floats = np.squeeze((low + np.where(known > 0, high, np.nan)) / 2, axis)
    return found


class _Rows(NamedTuple):
    """The rows of one rank that count, and where they stand in the arrays."""

    track: RankTrack
    clock: RankClock
    steps: Ints
    buckets: Ints
    step_at: Ints
    bucket_at: tuple[Ints, Ints]


class StepArrays:
    """What was measured of one model, in ns and bytes; R ranks, S steps, B buckets.

    B is 0, or some steps have no buckets, where the file's limit left them out.  Of ``ranks``,
    ``steps`` and ``buckets`` the arrays' axes are made; ``last`` is the bucket whose gradients come
    last; ``gradient_bytes`` has an entry a bucket.
    """

    def __init__(
        self,
        names: tuple[str, str],
        generation: int,
        steps: Ints,
        buckets: Ints,
        rows: Sequence[_Rows],
    ) -> None:
        self.model, self.hook = names
        self.generation = generation
        self.ranks = [own.track.rank for own in rows]
        self.steps = steps
        self.buckets = buckets
        self.gradient_bytes = np.zeros(len(buckets), np.int64)
        self.last = int(buckets[-1]) if len(buckets) else 0
        self.is_on_device = False
        self._rows = rows
        for own in rows:
            columns = own.track.buckets
            self.gradient_bytes[own.bucket_at[1]] = columns.gradient_bytes[own.buckets]
            last = columns.bucket[own.buckets[columns.having("is_last")[own.buckets]]]
            self.last = int(last[-1]) if len(last) else self.last
            on_device = columns.having("device") | columns.having("untimed")
            self.is_on_device |= bool(on_device[own.buckets].any())

    def by_step(self, column: str) -> Floats:
        """Return a column of the steps, (R, S)."""
        found = np.full((len(self.ranks), len(self.steps)), np.nan)
        for i, own in enumerate(self._rows):
            found[i, own.step_at] = _known(getattr(own.track.steps, column)[own.steps])
        return found

    def by_bucket(self, values: Callable[[_Rows], Ints | Floats]) -> Floats:
        """Return what ``values`` gives for the bucket rows of each rank, (R, S, B)."""
        found = np.full((len(self.ranks), len(self.steps), len(self.buckets)), np.nan)
        for i, own in enumerate(self._rows):
            found[i, *own.bucket_at] = values(own)
        return found

    @cached_property
    def period(self) -> Floats:
        """Since the previous step's first bucket, (R, S)."""
        return self.by_step("period")

    @cached_property
    def exposed(self) -> Floats:
        """Communication that backward did not hide, (R, S)."""
        return self.by_step("exposed")

    @cached_property
    def busy(self) -> Floats:
        """With at least one bucket under way, (R, S); NaN where nothing was."""
        busy = self.by_step("busy")
        return np.where(busy > 0, busy, np.nan)

    @cached_property
    def called(self) -> Floats:
        """When the hook was called, (R, S, B)."""
        origin = np.full(len(self.steps), np.iinfo(np.int64).max)
        for own in self._rows:
            first = own.clock.common(own.track.steps.first_ready[own.steps])
            np.minimum.at(origin, own.step_at, first)
        return self.by_bucket(
            lambda own: (
                own.clock.common(own.track.buckets.called[own.buckets]) - origin[own.bucket_at[0]]
            )
        )

    @cached_property
    def uncertainty(self) -> Floats:
        """By how much ``called`` may be off beside another rank's, (R, S, B)."""
        return self.by_bucket(
            lambda own: _known(own.clock.uncertainty(own.track.buckets.called[own.buckets]))
        )

    @cached_property
    def ready(self) -> Floats:
        """When the gradients were there, in the clock that tells the truth of them, (R, S, B)."""
        return self.called + self._since_called("ready_after")

    @cached_property
    def done(self) -> Floats:
        """When the result was there, by the clock of ``ready``, (R, S, B)."""
        return self.called + self._since_called("done_after")

    def _since_called(self, column: str) -> Floats:
        def since(own: _Rows) -> Floats:
            columns = own.track.buckets
            spent = getattr(columns, column)[own.buckets]
            return np.where(columns.having("untimed")[own.buckets], np.nan, spent)

        return self.by_bucket(since)

    def column(self, name: str) -> Floats:
        """Return a column of the buckets, bytes, (R, S, B)."""
        return self.by_bucket(lambda own: _known(getattr(own.track.buckets, name)[own.buckets]))

    def call(self) -> Floats:
        """Return how long the hook itself took, (R, S, B)."""
        return self.by_bucket(lambda own: own.track.buckets.launched_after[own.buckets])

    @cached_property
    def stages(self) -> dict[str, Floats]:
        """Time in each stage that occurs, (R, S, B); 0 where a bucket went without."""
        found = {}
        sums = {own.track.rank: own.track.time_in_stages() for own in self._rows}
        for at in sorted({at for own in self._rows for at in _stages_of(own)}):
            values = self.by_bucket(lambda own, at=at: sums[own.track.rank][own.buckets, at])  # type: ignore[misc]
            values[np.isnan(self.done)] = np.nan
            found[STAGE_NAMES[at]] = values
        return found

    @cached_property
    def errors(self) -> list[tuple[int, ErrorRecord]]:
        """The bucket and what was found, for each probe."""
        return [
            (int(own.track.buckets.bucket[row]), own.track.errors[row])
            for own in self._rows
            for row in sorted(set(own.buckets.tolist()) & own.track.errors.keys())
        ]

    def rows_of_step(self, i: int, s: int) -> tuple[RankTrack, list[tuple[int, int]]]:
        """Return the track of the ``i``-th rank, and row and place of each bucket of a step."""
        own = self._rows[i]
        step, bucket = own.bucket_at
        at = np.flatnonzero(step == s)
        return own.track, list(zip(own.buckets[at].tolist(), bucket[at].tolist(), strict=True))


def settled_steps(timeline: Timeline, model: str) -> StepArrays | None:
    """Return the arrays of a model's last generation; ``None`` where no step of it counts."""
    ranks = list(zip(timeline.tracks, timeline.clocks, strict=True))
    settled = [np.flatnonzero(t.is_of(t.steps, model) & t.steps.counts) for t, _ in ranks]
    last = max((t.steps.generation[own].max(initial=-1) for (t, _), own in
                zip(ranks, settled, strict=True)), default=-1)  # fmt: skip
    if last < 0:
        return None
    of_steps = [
        own[t.steps.generation[own] == last] for (t, _), own in zip(ranks, settled, strict=True)
    ]
    every = [t.steps.step[own] for (t, _), own in zip(ranks, of_steps, strict=True)]
    of_buckets = [
        _rows_of_steps(t, own, model, int(last)) for (t, _), own in zip(ranks, every, strict=True)
    ]
    steps = np.unique(np.concatenate(every))
    buckets = np.unique(
        np.concatenate([t.buckets.bucket[b] for (t, _), b in zip(ranks, of_buckets, strict=True)])
    )
    rows = [
        _Rows(
            track=track,
            clock=clock,
            steps=own,
            buckets=rows,
            step_at=np.searchsorted(steps, track.steps.step[own]),
            bucket_at=(
                np.searchsorted(steps, track.buckets.step[rows]),
                np.searchsorted(buckets, track.buckets.bucket[rows]),
            ),
        )
        for (track, clock), own, rows in zip(ranks, of_steps, of_buckets, strict=True)
    ]
    names = [names for track, _ in ranks for names in track.models if names[0] == model]
    return StepArrays(names[-1], int(last), steps, buckets, rows)


def _rows_of_steps(track: RankTrack, steps: Ints, model: str, generation: int) -> Ints:
    columns = track.buckets
    odd = columns.having("shadow") | columns.having("warmup") | columns.having("exception")
    found: Ints = np.flatnonzero(
        track.is_of(columns, model)
        & (columns.generation == generation)
        & ~odd
        & np.isin(columns.step, steps)
    )
    return found


def _stages_of(own: _Rows) -> list[int]:
    """Return which stages the buckets of a rank go through."""
    counts = np.zeros(len(own.track.buckets), bool)
    counts[own.buckets] = True
    names = own.track.stages.name[np.repeat(counts, own.track.buckets.stages)]
    found: list[int] = np.unique(names).tolist()
    return found


def _known(values: Ints) -> Floats:
    found: Floats = np.where(values == UNKNOWN, np.nan, values.astype(np.float64))
    return found
