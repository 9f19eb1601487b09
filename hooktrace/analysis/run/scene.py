"""One model of a run, ready to be drawn: all ranks in one clock, ns since the run's origin.

    Run, model --Scene--> buckets, steps, exposed time of all ranks as columns: Bars, Steps, Spans
    Bars, Unit of each --lanes_of--> the row in its rank's lane in which each is drawn
    some Bars --Scene.pieces--> their stages, wire split into wait and transfer

The origin is the first time that any rank has, so that numbers stay small enough for a browser.
The tab and the Perfetto file draw it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ...records import STAGES, UNIT_KINDS, Unit
from ...records.other import OtherCollective, OtherCollectives
from .clock import RankClock
from .columns import UNKNOWN, Bools, Floats, Ints, RankTrack, bucket_keys
from .counts import COUNTS, reasons
from .dense import settled_steps
from .hangs import hangs as hangs_of
from .order import LateRank, is_order_known, late_ranks, why_nobody
from .run import Run
from .waits import PIECES, Pieces, pieces_of
from .waits import waits as waits_of

_T = TypeVar("_T", bound=np.generic)

LATE = 1 << 16
"""Bit beside ``FLAGS``: others waited here for this rank, which is late."""

KINDS = (*PIECES, "other")
"""What time in a bucket is; ``other`` is in no stage."""

_WIRE, _WAIT = PIECES.index("wire"), PIECES.index("wait")

_OPEN_SHARE, _OPEN_NS = 0.1, 1_000_000_000
"""By how much a hang without an end lengthens the run, and one in which nothing else happened."""

MAX_ROWS = 12
"""Rows of buckets in a rank's lane, at most."""
TITLES = ("all-gather fwd", "all-gather bwd", "reduce-scatter", "all-reduce", "not known")
"""Of ``UNIT_KINDS``, as the rows are titled; the last: of a file whose layout is not there."""


@dataclass(frozen=True)
class Spans:
    """Stretches of time, one rank after another, and of a rank by their ``start``.

    ``rank``: its place in the run.  ``row``: in the rank's columns.  ``start``, ``end``: ns since
    the origin.
    """

    rank: Ints
    row: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, ranks: Iterable[Sequence[Any]]) -> Self:
        """Return what the ranks have, each all columns behind ``rank``, in order."""
        parts = [(np.full(len(one[0]), i), *one) for i, one in enumerate(ranks)]
        return cls(*map(np.concatenate, zip(*parts, strict=True))).in_order()

    def joined(self, *others: Self) -> Self:
        """Return these and others, in order."""
        columns = ([getattr(one, f.name) for one in (self, *others)] for f in fields(self))
        return type(self)(*map(np.concatenate, columns)).in_order()

    def since(self, origin: int) -> Self:
        """Return them with times since an origin."""
        return replace(self, start=self.start - origin, end=self.end - origin)

    def in_order(self) -> Self:
        """Return them in order; one that ends before its start ends there."""
        found = replace(self, end=np.maximum(self.start, self.end))
        later = np.diff(self.rank)
        if ((later > 0) | (later == 0) & (np.diff(self.start) >= 0)).all():
            return found  # as a rule; to sort them takes longer than all the rest
        return found.at(np.lexsort((self.start, self.rank)))

    def __len__(self) -> int:
        return len(self.row)

    def at(self, places: Any) -> Self:
        """Return some of them."""
        return type(self)(*(getattr(self, one.name)[places] for one in fields(self)))

    def inside(self, t0: int, t1: int, ranks: Collection[int]) -> Ints:
        """Return the places of those of some ranks that overlap a stretch."""
        found: Ints = np.flatnonzero((self.start <= t1) & (self.end >= t0))
        return found[np.isin(self.rank[found], [*ranks])]

    def of_rank(self, i: int) -> slice:
        """Return where a rank's are."""
        return slice(*np.searchsorted(self.rank, (i, i + 1)).tolist())

    def gather(self, columns: Iterable[npt.NDArray[_T]]) -> npt.NDArray[_T]:
        """Return of each what its rank's column has in its row; ``columns``: one a rank."""
        rows = (column[self.row[self.of_rank(i)]] for i, column in enumerate(columns))
        return np.concatenate([*rows])


@dataclass(frozen=True)
class Bars(Spans):
    """Buckets of one model, or units' collectives.  ``unit``: which, ``UNKNOWN`` of a bucket."""

    step: Ints
    bucket: Ints
    flags: Ints
    unit: Ints
    lane: Ints


@dataclass(frozen=True)
class Steps(Spans):
    """Steps of one model.  ``period``: to the next one; ``counts``: which enter statistics."""

    number: Ints
    last_ready: Ints
    exposed: Ints
    period: Ints
    counts: Bools


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


def lanes_of(bars: Bars, units: list[Unit]) -> tuple[Ints, list[str]]:
    """Return the row of each bar in its rank's lane, and of a sharded model the rows' titles.

    Few buckets: a row for each index, so that a step is a staircase and a bucket is always at the
    same height.  Many: each takes the first row that is free, and the rows begin anew with each
    step.  Units have rows by kind: parameters that are gathered forward and backward, gradients
    that are scattered, and reduced over the replicas.  Collectives of one kind that are under way
    at once have a row each; kinds that no rank has take no room.
    """
    if not units:
        few = bars.bucket.max(initial=0) < MAX_ROWS
        own = (bars.start, bars.end, bars.rank, bars.step)
        return (bars.bucket.astype(np.int64) if few else free_rows(*own)), []
    kind = np.array([*(UNIT_KINDS.index(one.kind) for one in units), len(UNIT_KINDS)])[bars.unit]
    row = free_rows(bars.start, bars.end, kind, bars.rank, bars.step)
    heights = [int(row[kind == k].max(initial=-1)) + 1 for k in range(len(TITLES))]
    titles = [
        "" if i else title
        for title, height in zip(TITLES, heights, strict=True)
        for i in range(height)
    ]
    return np.cumsum([0, *heights])[kind] + row, titles


def free_rows(start: Ints, end: Ints, *groups: Ints, most: int = MAX_ROWS) -> Ints:
    """Return for each bar the first row, below ``most``, that is free in its group.

    A group has one value of each of ``groups``; its bars come by their start.  Where more than
    ``most`` of them are under way at once, some share a row.
    """
    rows = np.zeros(len(start), np.int64)
    order = np.lexsort(groups)
    differs = np.any([np.diff(one[order]) != 0 for one in groups], axis=0)
    firsts = np.flatnonzero(np.append(len(start) > 0, differs))
    sizes = np.diff(np.append(firsts, len(order)))
    busy_to = np.full((len(firsts), most), np.iinfo(np.int64).min)
    # The k-th bar of all groups at once: as many turns as a group has bars.
    for k in range(int(sizes.max(initial=0))):
        own = np.flatnonzero(sizes > k)
        at = order[firsts[own] + k]
        free = busy_to[own] <= start[at, None]
        row = free.argmax(axis=1)
        # Where none is free, the one that is free the soonest.
        if len(full := np.flatnonzero(~free.any(axis=1))):
            row[full] = busy_to[own[full]].argmin(axis=1)
        busy_to[own, row] = np.maximum(busy_to[own, row], end[at])
        rows[at] = row
    return rows
