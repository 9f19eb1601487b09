"""One model of a run, ready to be drawn: all ranks in one clock, ns since the run's origin.

    Run, model --Scene--> buckets, steps, exposed time of all ranks as columns (spans.py)
    some bars --Scene.pieces--> their stages, wire split into wait and transfer

The origin is the first time that any rank has, so that numbers stay small enough for a browser.
The tab and the Perfetto file draw it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ...records import STAGES, Unit
from ...records.other import OtherCollective, OtherCollectives
from .clock import RankClock
from .columns import UNKNOWN, Floats, Ints, RankTrack, bucket_keys
from .counts import COUNTS, reasons
from .dense import settled_steps
from .hangs import hangs as hangs_of
from .order import LateRank, is_order_known, late_ranks, why_nobody
from .run import Run
from .spans import Bars, Spans, Steps, lanes_of
from .waits import PIECES, Pieces, pieces_of
from .waits import waits as waits_of

LATE = 1 << 16
"""Bit beside ``FLAGS``: others waited here for this rank, which is late."""

KINDS = (*PIECES, "other")
"""What time in a bucket is; ``other`` is in no stage."""

_WIRE, _WAIT = PIECES.index("wire"), PIECES.index("wait")

_OPEN_SHARE, _OPEN_NS = 0.1, 1_000_000_000
"""By how much a hang without an end lengthens the run, and one in which nothing else happened."""


def _placed(track: RankTrack, clock: RankClock) -> tuple[Ints, ...]:
    """Return when buckets were ready and done, and when steps began, were ready and ended.

    ns of rank 0's host clock, by row; of ``untimed`` buckets the host's.
    """
    buckets, steps = track.buckets, track.steps
    ready = clock.common(buckets.ready)
    done = ready + np.maximum(buckets.done_after - buckets.ready_after, 0)
    first = clock.common(steps.first_ready)
    last = first + (steps.last_ready - steps.first_ready)
    ended = np.maximum(first + (steps.done - steps.first_ready), first)
    # The host does not see when a step on a device was ready, or done: its buckets tell.
    row = np.flatnonzero(buckets.having("device"))
    of = steps.rows_of(buckets.model[row], buckets.step[row])
    row, of = row[of != UNKNOWN], of[of != UNKNOWN]
    for found, moments in ((last, ready), (ended, done)):
        found[of] = first[of]
        np.maximum.at(found, of, moments[row])
    return ready, done, first, last, ended


class Scene:
    """All ranks of one model; an empty one where the run does not have it.

    - ``numbers``: of the ranks; all else names a rank by its place among these.
    - ``origin``: the first time of the model that any rank has, in rank 0's clock.
    - ``waits``: what ranks wait for each other.  ``hangs``: those of the model, and of no model.
    - ``late``: the ranks that the report names, the worst first, and where others waited for each;
      ``late_note``: why it names none.
    - ``bars``: the buckets that have times, or the collectives of a sharded model's ``units``,
      whose rows have ``titles``; both are empty of DDP's.
    - ``anomalies``: rank, time and record of each.
    - ``calls``: the collectives that belong to no bucket, whichever model's step was sampled, with
      that step; ``others``: when they were in flight, for no time where no end is known, ``row``
      being the place in ``calls``.
    """

    def __init__(self, run: Run, model: str) -> None:
        self.run, self.model, self.tracks = run, model, run.tracks
        self.numbers = [track.rank for track in run.tracks]
        self.waits = waits_of(run, model)
        self.hangs = [one for one in hangs_of(run) if one.record.model in (model, "")]
        self.late, self.late_note = _late(run, model)
        bars: list[list[Ints]] = []
        steps: list[list[Any]] = []
        units: dict[Unit, int] = {}
        for (track, clock), why in zip(run.ranks, reasons(run), strict=True):
            ready, done, first, last, ended = _placed(track, clock)
            buckets, own, unit_of = track.buckets, track.steps, np.full(len(track.facts), UNKNOWN)
            at = np.flatnonzero(track.is_of(buckets, model) & ~buckets.having("untimed"))
            for i in np.unique(buckets.facts[at]).tolist():
                if (unit := track.facts[i].unit) is not None:
                    unit_of[i] = units.setdefault(unit, len(units))
            flags, number = buckets.flags.astype(np.int64), unit_of[buckets.facts]
            of_bars = ready, done, buckets.step, buckets.bucket, flags, number
            bars.append([at, *(column[at] for column in of_bars), at])
            at = np.flatnonzero(track.is_of(own, model))
            exposed = np.clip(own.exposed, UNKNOWN, ended - first)
            of_steps = first, ended, own.step, last, exposed, own.period, why == COUNTS
            steps.append([at, *(column[at] for column in of_steps)])
        self.bars, self.steps = Bars.of(bars), Steps.of(steps)
        firsts = [int(one.start.min()) for one in (self.bars, self.steps) if len(one)]
        self.origin = min([*firsts, *(one.start for one in self.hangs)], default=0)
        last_ready = self.steps.last_ready - self.origin
        self.bars = self.bars.since(self.origin)
        self.steps = replace(self.steps.since(self.origin), last_ready=last_ready)
        self.units = [*units]
        for late, keys in self.late:
            its = self.bars.of_rank(self.numbers.index(late.rank))
            own_keys = bucket_keys(self.bars.step[its], self.bars.bucket[its])
            self.bars.flags[its] |= np.isin(own_keys, keys) * LATE
        lane, self.titles = lanes_of(self.bars, self.units)
        self.bars = replace(self.bars, lane=lane)
        self.anomalies = [
            (i, clock.at(one.time_ns) - self.origin, one)
            for i, (track, clock) in enumerate(run.ranks)
            for one in track.records.anomalies
            if one.model == model
        ]
        self.calls, self.others = self._other_calls()

    @property
    def first(self) -> int:
        """The first of all times that are drawn, in rank 0's clock."""
        others = int(self.others.start.min(initial=0))
        return self.origin + min(0, others, *(at for _, at, _ in self.anomalies))

    @property
    def is_sharded(self) -> bool:
        """Whether bars are units' collectives, and not buckets."""
        return bool(self.titles)

    @cached_property
    def step_numbers(self) -> Ints:
        """The steps that any rank has, ascending."""
        return np.unique(self.steps.number)

    def cells(self, values: Ints) -> Ints:
        """Return what steps have by rank and step; of a step that is there twice the larger."""
        found: Ints = np.full((len(self.numbers), len(self.step_numbers)), UNKNOWN)
        place = np.searchsorted(self.step_numbers, self.steps.number)
        np.maximum.at(found, (self.steps.rank, place), values)
        return found

    @cached_property
    def extent(self) -> int:
        """The last end, and of an open hang as much as shows it."""
        ends = [(one.end or one.start) - self.origin for one in self.hangs]
        extent = max(self.bars.end.max(initial=0), self.steps.end.max(initial=0), *ends, 0)
        is_open = any(one.end is None for one in self.hangs)
        return int(extent) + is_open * (int(_OPEN_SHARE * extent) or _OPEN_NS)

    @cached_property
    def lanes(self) -> int:
        """How many rows each rank has."""
        return int(self.bars.lane.max(initial=0)) + 1 + (len(self.others) > 0)

    @property
    def others_lane(self) -> int | None:
        """The last row, of collectives that belong to no bucket; ``None`` where no rank has any."""
        return self.lanes - 1 if len(self.others) else None

    @cached_property
    def spent(self) -> Floats:
        """The ns of each of ``KINDS`` in each bar, (kinds, bars)."""
        found: Floats = np.zeros((len(KINDS), len(self.bars)))
        for i, (track, waited) in enumerate(zip(self.tracks, self.waits.waited, strict=True)):
            own = self.bars.of_rank(i)
            known = np.maximum(waited.ns, 0)
            wait = np.bincount(track.bucket_of_stages(), known, minlength=len(track.buckets))
            for kind, name in enumerate(STAGES):
                found[kind, own] = track.time_in(name)[self.bars.row[own]]
            found[_WAIT, own] = wait[self.bars.row[own]]
        found[_WIRE] -= found[_WAIT]
        took = self.bars.end - self.bars.start
        found[-1] = np.maximum(took - found.sum(axis=0), 0)
        return found

    def pieces(self, bars: Bars) -> Pieces:
        """Return the stages of some bars, cut to them; times are ns since the origin.

        ``of``: the place of the bar.
        """
        parts = []
        for i in np.unique(bars.rank).tolist() or [0]:
            own = bars.of_rank(i)
            found = pieces_of(self.tracks[i], bars.row[own], self.waits.waited[i])
            of = found.of + own.start
            begun, times = bars.start[of], (found.start, found.end)
            start, end = (np.clip(begun + at, begun, bars.end[of]) for at in times)
            parts.append(found._replace(of=of, start=start, end=end))
        return Pieces(*map(np.concatenate, zip(*parts, strict=True)))

    @cached_property
    def exposed(self) -> Spans:
        """Where time is exposed: at the end of a DDP step, of a sharded one at each unit.

        Training stands still while it issues a unit's collective, which takes all of a synchronous
        one, and again until the end if it comes to wait before that.  A wait that outlasts the
        collective, since the thread woke up late or came when all was there, is drawn before the
        end, and cut.  On a device, which is not kept by issuing, it is the end alone; of what is
        waited for together too, where a part of the time before may be another one's.
        """
        steps, bars, tracks = self.steps, self.bars, self.tracks
        at_end = np.maximum(steps.exposed, 0)
        at_end[steps.gather(t.steps.having("sharded") for t in tracks)] = 0
        waited = bars.gather(t.buckets.exposed for t in tracks).clip(0, bars.end - bars.start)
        bars, waited = bars.at(own := waited > 0), waited[own]
        issuing = bars.gather(t.buckets.launched_after for t in tracks).clip(0, waited)
        issuing[bars.gather(t.buckets.having("device") for t in tracks)] = 0
        found = Spans(steps.rank, steps.row, steps.end - at_end, steps.end).joined(
            Spans(bars.rank, bars.row, bars.start, bars.start + issuing),
            Spans(bars.rank, bars.row, bars.end - (waited - issuing), bars.end),
        )
        return found.at(found.end > found.start)

    def _other_calls(self) -> tuple[list[tuple[OtherCollective, OtherCollectives]], Spans]:
        calls: list[tuple[OtherCollective, OtherCollectives]] = []
        parts = []
        for track, clock in self.run.ranks:
            own = [(one, of) for of in track.records.others for one in of.collectives]
            issued = np.array([one.issued_ns for one, _ in own], np.int64)
            done = np.array([one.done_ns or one.issued_ns for one, _ in own], np.int64)
            times = (clock.common(at) - self.origin for at in (issued, done))
            parts.append((len(calls) + np.arange(len(own)), *times))
            calls += own
        return calls, Spans.of(parts)


def _late(run: Run, model: str) -> tuple[list[tuple[LateRank, Ints]], str]:
    if len(run.tracks) < 2:
        return [], ""
    arrays = settled_steps(run, model)
    if arrays is None or not len(arrays.steps):
        return [], "Not known: no step counts."
    arrays = arrays.sample
    late = late_ranks(arrays)
    if not late:
        why = why_nobody(is_order_known=is_order_known(arrays), is_sharded=arrays.is_sharded)
        return [], f"No rank is named: {why}."
    return late, ""
