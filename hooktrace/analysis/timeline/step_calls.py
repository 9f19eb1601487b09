"""The calls of one step on all ranks, in one clock: for what is followed from call to call.

    Timeline, model --StepCalls.of(rank's row, step)--> {bucket: Call}

Columns answer what is asked of all steps at once; this answers what is asked of one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...records import Members, Unit
from .columns import STAGE_NAMES, UNKNOWN, BucketColumns, Ints, RankTrack
from .merge import RankClock, Timeline
from .whole import groups_of, units_by_number


class CallStage(NamedTuple):
    """A stage of a call, ns of rank 0's clock; ``row``: in the rank's ``stages``."""

    name: str
    start: int
    end: int
    row: int


class Call(NamedTuple):
    """A bucket's call on one rank, ns of rank 0's clock; ``stages`` in the order of the file.

    ``called`` to ``launched``: when the hook had the thread that runs backward; both ``None`` of
    times that are a device's.  ``is_awaited``: of a sharded model's unit whether training stood
    still until it was done, ``None`` where that is not known; of a bucket no single one is.
    ``members``: the ranks in its collectives, ``None`` for all.
    """

    bucket: int
    ready: int
    done: int
    called: int | None
    launched: int | None
    stages: tuple[CallStage, ...]
    is_awaited: bool | None
    members: Members | None

    @property
    def wires(self) -> list[CallStage]:
        """Its collectives, in their order."""
        return [stage for stage in self.stages if stage.name == "wire"]


class StepTimes(NamedTuple):
    """When a step's first bucket was ready on a rank, and its last one done, in rank 0's clock.

    ``unsure``: by how many ns ``done`` may be off.
    """

    first_ready: int
    done: int
    unsure: int


class _RankRows:
    """The rows of a rank's buckets of a model that have times, by step."""

    def __init__(
        self, track: RankTrack, clock: RankClock, model: str, world_size: int | None
    ) -> None:
        columns, self._groups = track.buckets, groups_of(track, world_size)
        rows = np.flatnonzero(track.is_of(columns, model) & ~columns.having("untimed"))
        rows = rows[np.argsort(columns.step[rows], kind="stable")]
        self._track, self._rows = track, rows
        self._ready = clock.common(columns.ready[rows])
        self._done = self._ready + columns.done_after[rows] - columns.ready_after[rows]
        self._first_stage = columns.first_stage
        # A step has a stretch of the rows.
        self.steps, self._begins = np.unique(columns.step[rows], return_index=True)
        if len(rows):
            self._first_ready = np.minimum.reduceat(self._ready, self._begins)
            self._last_done = np.maximum.reduceat(self._done, self._begins)
            host = np.maximum.reduceat(columns.done[rows], self._begins)
            self._unsure = clock.uncertainty(host)

    def _at(self, step: int) -> int | None:
        at = int(np.searchsorted(self.steps, step))
        return at if at < len(self.steps) and self.steps[at] == step else None

    def times(self, step: int) -> StepTimes | None:
        """Return the times of a step; ``None`` where it is not there."""
        at = self._at(step)
        if at is None:
            return None
        columns = self._first_ready, self._last_done, self._unsure
        return StepTimes(*(int(column[at]) for column in columns))

    def calls(self, step: int) -> dict[int, Call]:
        """Return the calls of a step."""
        at = self._at(step)
        if at is None:
            return {}
        of = slice(self._begins[at], next(iter(self._begins[at + 1 : at + 2]), None))
        columns, rows, ready = self._track.buckets, self._rows[of], self._ready[of]
        called = ready - columns.ready_after[rows]
        facts = zip(
            rows.tolist(),
            columns.bucket[rows].tolist(),
            ready.tolist(),
            self._done[of].tolist(),
            called.tolist(),
            (called + columns.launched_after[rows]).tolist(),
            columns.having("device")[rows].tolist(),
            _awaited(columns, rows),
            self._groups.of[rows].tolist(),
            strict=True,
        )
        return {
            bucket: Call(
                bucket, at, done, None if device else called, None if device else launched,
                self._stages(row, at), awaited,
                None if group == UNKNOWN else self._groups.members[group],
            )
            for row, bucket, at, done, called, launched, device, awaited, group in facts
        }  # fmt: skip

    def _stages(self, row: int, ready: int) -> tuple[CallStage, ...]:
        stages = self._track.stages
        first = int(self._first_stage[row])
        of = slice(first, first + int(self._track.buckets.stages[row]))
        columns = stages.name[of].tolist(), stages.start[of].tolist(), stages.end[of].tolist()
        return tuple(
            CallStage(STAGE_NAMES[name], ready + start, ready + end, first + i)
            for i, (name, start, end) in enumerate(zip(*columns, strict=True))
        )


def _awaited(columns: BucketColumns, rows: Ints) -> list[bool | None]:
    """Return ``Call.is_awaited`` of each row: a unit is, where more than its issuing is exposed."""
    exposed, launched = columns.exposed[rows], columns.launched_after[rows]
    is_issuing = (launched < columns.done_after[rows]) & ~columns.having("device")[rows]
    is_awaited = exposed > np.where(is_issuing, launched, 0)
    unknown = columns.having("sharded")[rows] & (exposed == UNKNOWN)
    pairs = zip(is_awaited.tolist(), unknown.tolist(), strict=True)
    return [None if why else awaited for awaited, why in pairs]


def units_by_bucket(timeline: Timeline, model: str) -> dict[int, Unit]:
    """Return what a sharded model's collectives are, by bucket; of DDP's buckets nothing."""
    found: dict[int, Unit] = {}
    for track in timeline.tracks:
        own = units_by_number(track, track.is_of(track.buckets, model))
        found |= {bucket: unit for bucket, unit in own.items() if bucket not in found}
    return found


class StepCalls:
    """The steps of one model; ranks by their row in the timeline."""

    def __init__(self, timeline: Timeline, model: str) -> None:
        pairs = zip(timeline.tracks, timeline.clocks, strict=True)
        size = None if timeline.run is None else timeline.run.world_size
        self._ranks = [_RankRows(track, clock, model, size) for track, clock in pairs]

    def of(self, lane: int, step: int) -> dict[int, Call]:
        """Return a rank's calls of a step by bucket."""
        return self._ranks[lane].calls(step)

    def times(self, step: int) -> list[StepTimes]:
        """Return the times of a step on all ranks that have it."""
        found = [rank.times(step) for rank in self._ranks]
        return [one for one in found if one is not None]
