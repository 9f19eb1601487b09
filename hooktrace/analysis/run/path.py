"""The critical path of a step: the one chain of work without which it would have ended earlier.

    Run, model --CriticalPaths.of(step)--> CriticalPath: segments without a gap

It is found backwards, from the last bucket done on any rank: its decompress; the *transfer* of its
collective; from there on the rank that began the collective last, for which all others waited
(``waits.py``): what its call did before; where it queued, the call whose end freed the worker; else
that rank's *compute* until the bucket was ready, without the time in which hooks of earlier
buckets compressed on the same thread.  Compute reaches back to the end of the step before on all
ranks, so it is forward, backward, optimiser and input alike, and the paths of steps in a row leave
nothing out.

Segments lie one behind the other, from ``start`` to ``end``: their sum is the step's length.  A
rank that the clocks do not tell from others is not named: ``rank`` is ``UNKNOWN`` there, though
``lane`` says on which of them the path was followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from .clock import last_rank
from .columns import STAGE_NAMES, UNKNOWN
from .placed import placed
from .run import Run
from .waits import waits


class CallStage(NamedTuple):
    """A stage of a call, ns of rank 0's clock; ``row``: in the rank's ``stages``."""

    name: str
    start: int
    end: int
    row: int


class Call(NamedTuple):
    """A bucket's call on one rank, ns of rank 0's clock; ``stages`` in the order of the file.

    ``called`` to ``launched``: when the hook had the thread that runs backward.
    """

    bucket: int
    ready: int
    done: int
    called: int
    launched: int
    stages: tuple[CallStage, ...]

    @property
    def wires(self) -> list[CallStage]:
        """Its collectives, in their order."""
        return [stage for stage in self.stages if stage.name == "wire"]


class _Times(NamedTuple):
    """When a step's first bucket was ready on a rank, and its last one done, in rank 0's clock.

    ``unsure``: by how many ns ``done`` may be off.
    """

    first_ready: int
    done: int
    unsure: int


class _Lane:
    """A rank's calls of a model that have times, by step."""

    def __init__(self, run: Run, model: str, i: int) -> None:
        (self._track, clock), self._at = run.ranks[i], placed(run)[i]
        columns = self._track.buckets
        rows = np.flatnonzero(self._track.is_of(columns, model) & ~columns.having("untimed"))
        self._rows = rows = rows[np.argsort(columns.step[rows], kind="stable")]
        self._first_stage = columns.first_stage
        self.rank, self.waited = self._track.rank, waits(run, model).waited[i]
        # A step has a stretch of the rows.
        steps, begins = np.unique(columns.step[rows], return_index=True)
        self._place = {step: at for at, step in enumerate(steps.tolist())}
        self._begins = np.append(begins, len(rows))
        self._first_ready = np.minimum.reduceat(self._at.ready[rows], begins)
        self._done = np.maximum.reduceat(self._at.done[rows], begins)
        self._unsure = clock.uncertainty(np.maximum.reduceat(columns.done[rows], begins))

    def times(self, step: int) -> _Times | None:
        """Return the times of a step; ``None`` where it is not there."""
        at = self._place.get(step)
        if at is None:
            return None
        return _Times(int(self._first_ready[at]), int(self._done[at]), int(self._unsure[at]))

    def calls(self, step: int) -> dict[int, Call]:
        """Return the calls of a step by bucket."""
        columns, at = self._track.buckets, self._place[step]
        rows = self._rows[self._begins[at] : self._begins[at + 1]]
        begun = self._at.ready[rows] - columns.ready_after[rows]
        facts = zip(
            columns.bucket[rows].tolist(),
            self._at.ready[rows].tolist(),
            self._at.done[rows].tolist(),
            begun.tolist(),
            (begun + columns.launched_after[rows]).tolist(),
            rows.tolist(),
            strict=True,
        )
        return {
            bucket: Call(bucket, ready, done, called, launched, self._stages(row, ready))
            for bucket, ready, done, called, launched, row in facts
        }

    def _stages(self, row: int, ready: int) -> tuple[CallStage, ...]:
        stages, first = self._track.stages, int(self._first_stage[row])
        return tuple(
            CallStage(
                STAGE_NAMES[stages.name[i]], ready + int(stages.start[i]),
                ready + int(stages.end[i]), i,
            )
            for i in range(first, first + int(self._track.buckets.stages[row]))
        )  # fmt: skip


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


class _BrokenError(Exception):
    """The path cannot be followed; the message is a clause that says why."""


class CriticalPaths:
    """Finds the paths of a model's steps.

    ``why_unknown``: why there is no path of any step; ``None`` where there may be.
    """

    def __init__(self, run: Run, model: str) -> None:
        found = waits(run, model)
        self._lanes = [_Lane(run, model, i) for i in range(len(run.tracks))]
        self.why_unknown = found.why_unknown or found.why_no_clock
        if any((t.is_of(t.steps, model) & t.steps.having("sharded")).any() for t in run.tracks):
            self.why_unknown = "hooktrace follows the critical path of DDP models alone"

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
        try:
            segments = _Walk(self._lanes, step, start).back(times)
        except _BrokenError as broken:
            return CriticalPath(step, start, end, (), str(broken))
        return CriticalPath(step, start, end, tuple(reversed(segments)))

    def _times(self, step: int) -> list[_Times]:
        """Return the times of a step on all ranks that have it."""
        return [found for lane in self._lanes if (found := lane.times(step)) is not None]


class _Walk:
    """One step, from its end towards ``start``; segments come last first."""

    def __init__(self, lanes: list[_Lane], step: int, start: int) -> None:
        self._lanes, self._start = lanes, start
        self._of = lru_cache(None)(lambda lane: lanes[lane].calls(step))
        self._found: list[Segment] = []

    def back(self, times: list[_Times]) -> list[Segment]:
        """Return the segments, from the last bucket done on any rank."""
        _, done, unsure = np.array(times).T
        last = int(last_rank(done, unsure, np.ones(len(done), np.bool_))[0])
        # Of several that clocks do not tell apart it is one.
        self._follow(int(done.argmax()) if last == UNKNOWN else last, is_told=last != UNKNOWN)
        call = max(self._calls.values(), key=lambda one: one.done)
        self._at = call.done
        turns = len(self._lanes) * sum(len(one.stages) + 1 for one in self._calls.values())
        while (stage := _stage_before(call, self._at)) is not None and self._at > self._start:
            turns -= 1
            if turns < 0:
                raise _BrokenError("its calls wait for each other in a circle, by their times")
            self._until(stage.end, "other", call.bucket)
            call = self._through(call, stage)
        self._compute(call)
        return self._found

    def _follow(self, lane: int, *, is_told: bool) -> None:
        self._lane, self._calls = lane, self._of(lane)
        self._rank = self._lanes[lane].rank if is_told else UNKNOWN

    def _until(self, begin: int, kind: Kind, bucket: int) -> None:
        """Add what lies between a time and where the walk is, and go there, or to ``start``."""
        begin, end = max(begin, self._start), self._at
        if begin < end:
            rank = UNKNOWN if kind == "transfer" else self._rank
            self._at = begin
            self._found.append(Segment(kind, rank, bucket, begin, end, self._lane))

    def _through(self, call: Call, stage: CallStage) -> Call:
        """Add a stage and return the call to go on with."""
        kind = _KINDS.get(stage.name, "other")
        if stage.name == "wire":
            return self._transfer(call, stage)
        if kind == "queue" and (holder := self._holder(call, stage)) is not None:
            freed, other = holder
            self._until(freed, "queue", other.bucket)
            return other
        self._until(stage.start, kind, call.bucket)
        return call

    def _transfer(self, call: Call, stage: CallStage) -> Call:
        """Add a collective's transfer, and go on where its last rank began it."""
        ns, last = (int(values[stage.row]) for values in self._lanes[self._lane].waited)
        if ns == UNKNOWN:
            raise _BrokenError(
                f"nobody knows which rank began the collective of bucket {call.bucket} last"
            )
        # Of several that began last it is one; who did not wait is one of the last.
        among = [last]
        if last == UNKNOWN:
            among = [self._lane] if ns == 0 else [*range(len(self._lanes))]
        turn = call.wires.index(stage)
        begun = {i: self._of(i)[call.bucket].wires[turn].start for i in among}
        lane = max(begun, key=begun.__getitem__)
        self._until(min(begun[lane], self._at), "transfer", call.bucket)
        self._follow(lane, is_told=last != UNKNOWN)
        return self._calls[call.bucket]

    def _holder(self, call: Call, stage: CallStage) -> tuple[int, Call] | None:
        """Return when a call of this rank let this one go on, if in the stage, and which."""
        others = [one for one in self._calls.values() if one.done > stage.start and one is not call]
        ends = [(_freed(one, self._at), one) for one in others]
        held = [(at, one) for at, one in ends if at is not None and at > stage.start]
        return max(held, key=lambda pair: pair[0], default=None)

    def _compute(self, call: Call) -> None:
        """Add backward until a bucket was ready, and what earlier hooks did on its thread."""
        self._until(call.ready, "other", call.bucket)
        for other, stage in self._on_thread(call):
            if stage.end <= self._at:
                self._until(stage.end, "compute", call.bucket)
                self._until(stage.start, _KINDS.get(stage.name, "other"), other.bucket)
        self._until(self._start, "compute", call.bucket)

    def _on_thread(self, call: Call) -> list[tuple[Call, CallStage]]:
        """Return what hooks of this rank's earlier buckets did on the thread, the last first."""
        found = [
            (other, stage)
            for other in self._calls.values()
            for stage in other.stages
            if stage.name in ("compress", "probe")
            and max(other.called, self._start) <= stage.start
            and stage.start < stage.end <= min(other.launched, call.ready)
        ]
        return sorted(found, key=lambda pair: pair[1].end, reverse=True)


def _stage_before(call: Call, at: int) -> CallStage | None:
    """Return the stage of a call that was under way before a time, or ended last before it."""
    begun = [stage for stage in call.stages if stage.start < min(at, stage.end)]
    return max(begun, key=lambda stage: (min(stage.end, at), stage.start), default=None)


def _freed(call: Call, at: int) -> int | None:
    """Return when a call freed a worker, at the latest by ``at``: its end, else a collective's."""
    ends = [end for end in (call.done, *(wire.end for wire in call.wires)) if end <= at]
    return max(ends, default=None)
