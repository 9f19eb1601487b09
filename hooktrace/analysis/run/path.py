"""The critical path of a step: the one chain of work without which it would have ended earlier.

    Run, model --CriticalPaths.of(step)--> CriticalPath: segments without a gap

It is found backwards, from the last bucket done on any rank: its decompress; the *transfer* of its
collective; from there on the rank that began the collective last, for which all others waited
(``waits.py``): what its call did before; where it queued, the call whose end freed the worker; else
that rank's *compute* until the bucket was ready, without the time in which hooks of earlier
buckets compressed on the same thread.  Compute reaches back to the end of the step before on all
ranks, so it is forward, backward, optimiser and input alike, and the paths of steps in a row leave
nothing out.  Of a sharded model it reaches back to the collective for which training last stood
still, and the path goes on with that.

Segments lie one behind the other, from ``start`` to ``end``: their sum is the step's length.  A
rank that the clocks do not tell from others is not named: ``rank`` is ``UNKNOWN`` there, though
``lane`` says on which of them the path was followed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from ...records import Members, Unit
from .clock import last_rank
from .columns import STAGE_NAMES, UNKNOWN, BucketColumns, Ints
from .groups import process_groups, units_by_number
from .placed import placed
from .run import Run
from .waits import Waited, waits


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

    def has(self, rank: int) -> bool:
        """Return whether a rank is in its collectives."""
        return self.members is None or rank in range(*self.members)


class _Times(NamedTuple):
    """When a step's first bucket was ready on a rank, and its last one done, in rank 0's clock.

    ``unsure``: by how many ns ``done`` may be off.
    """

    first_ready: int
    done: int
    unsure: int


class _Lane:
    """A rank's calls of a model that have times, by step, and what its wire stages waited."""

    def __init__(self, run: Run, model: str, index: int, waited: Waited) -> None:
        (track, clock), at = run.ranks[index], placed(run)[index]
        columns, groups = track.buckets, process_groups(run)
        self._group, self._members = groups.of[index], groups.members
        rows = np.flatnonzero(track.is_of(columns, model) & ~columns.having("untimed"))
        rows = rows[np.argsort(columns.step[rows], kind="stable")]
        self.rank, self.waited, self._track, self._rows = track.rank, waited, track, rows
        self._ready, self._done = at.ready[rows], at.done[rows]
        self._first_stage = columns.first_stage
        # A step has a stretch of the rows.
        self._steps, self._begins = np.unique(columns.step[rows], return_index=True)
        if len(rows):
            self._first_ready = np.minimum.reduceat(self._ready, self._begins)
            self._last_done = np.maximum.reduceat(self._done, self._begins)
            host = np.maximum.reduceat(columns.done[rows], self._begins)
            self._unsure = clock.uncertainty(host)

    def _at(self, step: int) -> int | None:
        at = int(np.searchsorted(self._steps, step))
        return at if at < len(self._steps) and self._steps[at] == step else None

    def times(self, step: int) -> _Times | None:
        """Return the times of a step; ``None`` where it is not there."""
        if (at := self._at(step)) is None:
            return None
        columns = self._first_ready, self._last_done, self._unsure
        return _Times(*(int(column[at]) for column in columns))

    def calls(self, step: int) -> dict[int, Call]:
        """Return the calls of a step by bucket."""
        if (at := self._at(step)) is None:
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
            self._group[rows].tolist(),
            strict=True,
        )
        return {
            bucket: Call(
                bucket, at, done, None if device else called, None if device else launched,
                self._stages(row, at), awaited,
                None if group == UNKNOWN else self._members[group],
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


Kind = Literal["compute", "compress", "queue", "transfer", "decompress", "other"]

_KINDS: dict[str, Kind] = {
    "compress": "compress", "decompress": "decompress", "queue": "queue", "turn": "queue",
}  # fmt: skip
"""Of a stage; a wire stage is ``transfer``, and what is not here is ``other``."""


class Segment(NamedTuple):
    """A part of a path, ns of rank 0's clock.

    ``rank``: whose; of a transfer, which is all ranks', as of those that clocks do not tell apart,
    ``UNKNOWN``.  ``lane``: the row among the ranks along which it was followed.  ``bucket``: the
    one that was worked on, of compute the one that became ready by it.
    """

    kind: Kind
    rank: int
    bucket: int
    start: int
    end: int
    lane: int


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path of one step, from the end of the step before, else its first ready bucket.

    ``why_unknown``: a clause, where there is no path; ``segments`` is empty then.
    """

    step: int
    start: int
    end: int
    segments: tuple[Segment, ...]
    why_unknown: str | None = None


_Walking = Generator[Segment, None, Call]
"""Yields segments and returns the call that the path goes on with."""


class _BrokenError(Exception):
    """The path cannot be followed; the message is a clause that says why."""


class CriticalPaths:
    """Finds the paths of a model's steps.

    ``units``: of a sharded model what each bucket is.  ``why_unknown``: why there is no path of any
    step; ``None`` where there may be.
    """

    def __init__(self, run: Run, model: str) -> None:
        found = waits(run, model)
        self._lanes = [_Lane(run, model, i, found.waited[i]) for i in range(len(run.tracks))]
        self.units: dict[int, Unit] = {}
        for track in reversed(run.tracks):
            self.units |= units_by_number(track, track.is_of(track.buckets, model))
        self.why_unknown = found.why_unknown or found.why_no_clock

    def of(self, step: int) -> CriticalPath:
        """Return the path of a step; a step that a rank does not have has none."""
        times, ranks = self._times(step), len(self._lanes)
        why = self.why_unknown
        if why is None and len(times) < ranks:
            why = f"{len(times)} of {ranks} ranks have step {step} in a file"
        if why is not None:
            return CriticalPath(step, 0, 0, (), why)
        before, end = self._times(step - 1), max(one.done for one in times)
        start = min(one.first_ready for one in times)
        if len(before) == ranks:
            start = max(one.done for one in before)
        walk = _Walk(self._lanes, self.units, step, start)
        try:
            segments = tuple(reversed(list(walk.back(times))))
        except _BrokenError as broken:
            return CriticalPath(step, start, end, (), str(broken))
        return CriticalPath(step, start, end, segments)

    def _times(self, step: int) -> list[_Times]:
        """Return the times of a step on all ranks that have it."""
        return [found for lane in self._lanes if (found := lane.times(step)) is not None]


class _Walk:
    """One step, from its end towards ``start``; segments come last first."""

    def __init__(self, lanes: list[_Lane], units: dict[int, Unit], step: int, start: int) -> None:
        self._lanes, self._units, self._start = lanes, units, start
        self._of = lru_cache(None)(lambda lane: lanes[lane].calls(step))

    def back(self, times: list[_Times]) -> Iterator[Segment]:
        """Yield the segments, from the last bucket done on any rank."""
        done = np.array([one.done for one in times])
        self._follow(*_last_of(done, np.array([one.unsure for one in times])))
        call = max(self._calls.values(), key=lambda one: one.done)
        self._at = call.done
        turns = len(times) * sum(len(one.stages) + 1 for one in self._calls.values())
        while self._at > self._start:
            turns -= 1
            if turns < 0:
                raise _BrokenError("its calls wait for each other in a circle, by their times")
            stage = _stage_before(call, self._at)
            if stage is None:
                before = self._stood_still(call)
                yield from self._compute(call, self._start if before is None else before.done)
                if before is None:
                    return
                call = before
                continue
            if stage.end < self._at:
                yield from self._until(stage.end, "other", call.bucket)
            call = yield from self._through(call, stage)

    def _follow(self, lane: int, is_told: bool) -> None:
        self._lane = lane
        self._rank = self._lanes[lane].rank if is_told else UNKNOWN
        self._waited, self._calls = self._lanes[lane].waited, self._of(lane)

    def _until(self, begin: int, kind: Kind, bucket: int) -> Iterator[Segment]:
        """Yield what lies between a time and where the walk is, and go there, or to ``start``."""
        begin, end = max(begin, self._start), self._at
        if begin < end:
            rank = UNKNOWN if kind == "transfer" else self._rank
            self._at = begin
            yield Segment(kind, rank, bucket, begin, end, self._lane)

    def _through(self, call: Call, stage: CallStage) -> _Walking:
        """Yield a stage and return the call to go on with."""
        if stage.name == "wire":
            return (yield from self._transfer(call, stage))
        if _KINDS.get(stage.name) == "queue":
            holder = self._holder(call, stage)
            if holder is not None:
                return (yield from self._held(holder))
        yield from self._until(stage.start, _KINDS.get(stage.name, "other"), call.bucket)
        return call

    def _transfer(self, call: Call, stage: CallStage) -> _Walking:
        """Yield a collective's transfer, and go on where its last rank began it."""
        ns, last = int(self._waited.ns[stage.row]), int(self._waited.last[stage.row])
        if ns == UNKNOWN:
            unit = self._units.get(call.bucket)
            called = f"the collective of bucket {call.bucket}" if unit is None else unit
            raise _BrokenError(f"nobody knows which rank began {called} last")
        # Of several that began last it is one; who did not wait is one of the last.
        among = [last]
        if last == UNKNOWN:
            within = (i for i, one in enumerate(self._lanes) if call.has(one.rank))
            among = [self._lane] if ns == 0 else [*within]
        turn = call.wires.index(stage)
        lane, start = max(
            ((i, self._of(i)[call.bucket].wires[turn].start) for i in among),
            key=lambda pair: pair[1],
        )
        yield from self._until(min(start, self._at), "transfer", call.bucket)
        self._follow(lane, last != UNKNOWN)
        return self._calls[call.bucket]

    def _holder(self, call: Call, stage: CallStage) -> Call | None:
        """Return the call of this rank whose end let this one go on, if it ended in the stage."""
        others = [one for one in self._calls.values() if one.done > stage.start and one is not call]
        ends = [(_freed(one, self._at), one) for one in others]
        held = [(at, one) for at, one in ends if at is not None and at > stage.start]
        return max(held, key=lambda pair: pair[0])[1] if held else None

    def _held(self, holder: Call) -> _Walking:
        """Yield the time from the holder's end to where the walk is, and go on with the holder."""
        freed = _freed(holder, self._at)
        if freed is not None:
            yield from self._until(freed, "queue", holder.bucket)
        return holder

    def _stood_still(self, call: Call) -> Call | None:
        """Return the last call before this one that training waited for, of a sharded model."""
        before = [one for one in self._calls.values() if one.done <= min(call.ready, self._at)]
        if any(one.is_awaited is None for one in before):
            raise _BrokenError("it is not known for which units training waited")
        awaited = [one for one in before if one.is_awaited and one is not call]
        return max(awaited, key=lambda one: one.done, default=None)

    def _compute(self, call: Call, begin: int) -> Iterator[Segment]:
        """Yield backward until a bucket was ready, and what earlier hooks did on its thread."""
        yield from self._until(call.ready, "other", call.bucket)
        for other, stage in self._on_thread(call):
            if begin <= stage.start and stage.end <= self._at:
                yield from self._until(stage.end, "compute", call.bucket)
                yield from self._until(stage.start, _KINDS.get(stage.name, "other"), other.bucket)
        yield from self._until(begin, "compute", call.bucket)

    def _on_thread(self, call: Call) -> list[tuple[Call, CallStage]]:
        """Return what hooks of this rank's earlier buckets did on the thread, the last first."""
        found = [
            (other, stage)
            for other in self._calls.values()
            if other.called is not None and other.launched is not None
            for stage in other.stages
            if stage.name in ("compress", "probe")
            and other.called <= stage.start < stage.end <= other.launched
            and stage.end <= call.ready
        ]
        return sorted(found, key=lambda pair: pair[1].end, reverse=True)


def _last_of(times: Ints, unsure: Ints) -> tuple[int, bool]:
    """Return the row of the last rank, or of one of the last, and whether clocks tell it apart."""
    last = int(last_rank(times, unsure, np.ones(len(times), np.bool_))[0])
    return (int(times.argmax()), False) if last == UNKNOWN else (last, True)


def _stage_before(call: Call, at: int) -> CallStage | None:
    """Return the stage of a call that was under way before a time, or ended last before it."""
    begun = [stage for stage in call.stages if stage.start < min(at, stage.end)]
    return max(begun, key=lambda stage: (min(stage.end, at), stage.start), default=None)


def _freed(call: Call, at: int) -> int | None:
    """Return when a call freed a worker, at the latest by ``at``: its end, else a collective's."""
    ends = [end for end in (call.done, *(wire.end for wire in call.wires)) if end <= at]
    return max(ends, default=None)
