"""Events of one rank: rows, slices, arrows, counters, marks and hangs.

Each bucket index has a row of its own, its stages nested in it, and the steps have a row with the
exposed time nested at the end.  Of a sharded model each kind of collective has a row, with a slice
a unit; what is exposed is among the slices' arguments, since training waits at each.  Below all
models are hangs, and the other collectives of sampled steps.

Perfetto drops a slice that overlaps another one of its row without nesting; such a slice goes to a
second row.  A device bucket is drawn where its step's first bucket became ready on the host plus
its device times, since no clock ties the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from ...records import UNIT_KINDS, Unit
from ..run import (
    COUNTS,
    REASONS,
    STAGE_NAMES,
    UNKNOWN,
    Hang,
    Ints,
    RankClock,
    RankTrack,
    Run,
    process_groups,
)
from ..run.columns import KEY_BITS
from ..run.placed import Placed, placed

Event = dict[str, Any]


@dataclass(slots=True)
class TiedRank:
    """A rank, where its buckets and steps lie, and its buckets' way through the ranks.

    ``phase``: 0 where no other rank has the bucket or it has no length, else 1 on the rank that is
    ready first, 3 on the last one, 2 between.  ``flow``: the same number for the same bucket of the
    same step.  Of hybrid sharding only those ranks have it that are in the collective together, and
    of a device nothing has: where its times stand to those of another one is not known.
    """

    track: RankTrack
    clock: RankClock
    at: Placed
    phase: Ints
    flow: Ints

    def common(self, host_ns: Sequence[int]) -> list[int]:
        """Return times of the rank's host in rank 0's clock."""
        found: list[int] = self.clock.common(np.array(host_ns, np.int64)).tolist()
        return found


def tied(run: Run) -> list[TiedRank]:
    """Return each rank with the way of its buckets through the ranks."""
    models, times = {name: i for i, name in enumerate(run.model_names)}, placed(run)
    keys = []
    for track in run.tracks:
        ids = np.array([models[name] for name, _ in track.models] or [0])
        key = ids[track.buckets.model] << 32 | track.buckets.step
        keys.append(key << KEY_BITS | track.buckets.bucket)
    groups = [
        np.where(track.buckets.having("device"), UNKNOWN, numbers)
        for track, numbers in zip(run.tracks, process_groups(run).of, strict=True)
    ]
    starts, ends = [one.ready for one in times], [one.done for one in times]
    phase, flow = _ties(*map(np.concatenate, (keys, groups, starts, ends)))
    cuts = np.cumsum([len(one) for one in keys])[:-1]
    parts = times, np.split(phase, cuts), np.split(flow, cuts)
    return list(map(TiedRank, run.tracks, run.clocks, *parts))


def _ties(key: Ints, group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return phase and flow; of ranks that are ready at once the lower, in front, comes first."""
    # An arrow needs a slice of some length to hold on to: without one a bucket is by itself.
    key = np.where((end > start) & (group != UNKNOWN), key, -1 - np.arange(len(key)))
    order = np.lexsort((start, group, key))
    differs = (np.diff(key[order]) != 0) | (np.diff(group[order]) != 0)
    opens, closes = np.append(True, differs), np.append(differs, True)
    phase, flow = np.zeros_like(key), np.zeros_like(key)
    phase[order] = np.where(opens & closes, 0, np.where(opens, 1, np.where(closes, 3, 2)))
    flow[order] = np.cumsum(opens)
    return phase, flow


def first_time(ranks: list[TiedRank], hangs: Sequence[Hang] = ()) -> int:
    """Return the first of all times that are drawn."""
    found = [one.start for one in hangs]
    for one in ranks:
        records = one.track.records
        host = [anomaly.time_ns for anomaly in records.anomalies]
        host += [call.issued_ns for of in records.others for call in of.collectives]
        own = np.concatenate((one.track.steps.first_ready, np.array(host, np.int64)))
        found += [int(x.min()) for x in (one.clock.common(own), one.at.ready) if len(x)]
    return min(found, default=0)


_ROWS_PER_MODEL = 10_000
_ROWS_PER_OVERLAP = 1_000_000


@dataclass(slots=True)
class RankEvents:
    """Events of one rank, in ns after ``origin_ns``, each passed to ``emit``.

    ``why``: of each of its steps the place in ``REASONS``.
    """

    rank: TiedRank
    origin_ns: int
    why: Ints
    hangs: Sequence[Hang]
    emit: Callable[[Event], object]
    _ends: dict[int, float] = field(default_factory=dict)

    def write(self) -> None:
        """Emit the rank's events; a slice comes before those within it."""
        number, run = self.rank.track.rank, self.rank.track.records.run
        name = f"rank {number}" if run is None else f"rank {number} ({run.host})"
        known = self.rank.clock.is_known
        self._meta("process_name", name=name if known else f"{name}, clock unknown")
        self._meta("process_sort_index", sort_index=number)
        if not known:
            self._meta("process_labels", labels="clock unknown: placed by wall clock")
        self._steps()
        self._buckets()
        self._marks()
        self._hangs()
        self._others()

    def _meta(self, name: str, tid: int = 0, /, **args: object) -> None:
        self.emit({"ph": "M", "name": name, "pid": self.rank.track.rank, "tid": tid, "args": args})

    def _event(self, ph: str, at: int, **fields: object) -> None:
        ts = (at - self.origin_ns) / 1000
        self.emit({"ph": ph, "pid": self.rank.track.rank, "ts": ts, **fields})

    def _slice(self, tid: int, start: int, end: int, **fields: object) -> None:
        self._event("X", start, dur=(end - start) / 1000, tid=tid, **fields)

    def _mark(self, tid: int, at: int, **fields: object) -> None:
        scope = "t" if tid else "p"  # of the row, or of all rows of the rank
        self._event("i", at, s=scope, tid=tid, **fields)

    def _counter(self, at: int, model: int, name: str, **value: float) -> None:
        title = f"{self.rank.track.models[model][0]} {name}"
        self._event("C", at, cat="counter", name=title, args=value)

    def _tid(self, model: int, row: int = 0) -> int:
        """Return the first tid of a row of a model's, or behind all models of what is below."""
        # Perfetto shows threads in the order of their tids.  They start above the pid: a thread
        # whose tid is its pid counts as the process's main thread.
        return self.rank.track.rank + 1 + model * _ROWS_PER_MODEL + row

    def _row(self, tid: int, title: str, start: int, end: float) -> int:
        """Return the tid for a slice, of one row more where it would overlap another."""
        overlap = 0
        while self._ends.get(tid, start) > start:
            tid += _ROWS_PER_OVERLAP
            overlap += 1
        if tid not in self._ends:
            more = f" (overlap {overlap})" if overlap else ""
            self._meta("thread_name", tid, name=title + more)
            self._meta("thread_sort_index", tid, sort_index=tid)
        self._ends[tid] = end
        return tid

    def _steps(self) -> None:
        steps, at = self.rank.track.steps, self.rank.at
        columns = (
            *(steps.model, steps.step, steps.having("sharded"), self.why),
            *(at.first_ready, at.last_ready, at.ended, steps.exposed),
            *(steps.gradient_bytes, steps.wire_bytes, steps.bus_bytes, steps.wire_busy),
        )
        names = [name for name, _ in self.rank.track.models]
        for values in zip(*(column.tolist() for column in columns), strict=True):
            model, step, sharded, why, start, last_ready, end, exposed, *sizes = values
            payload, sent, on_bus, busy = sizes
            tid = self._row(self._tid(model), f"{names[model]}: steps", start, end)
            name = "payload_bytes" if sharded else "gradient_bytes"
            args = _known(**{name: payload}, wire_bytes=sent, exposed_ns=exposed)
            args |= {} if why == COUNTS else {"left_out": REASONS[why]}
            self._slice(tid, start, end, cat="step", name=f"step {step}", args=args)
            if exposed > 0 and not sharded:
                self._slice(tid, max(start, end - exposed), end, cat="exposed", name="exposed")
            if start <= last_ready <= end and not sharded:
                self._mark(tid, last_ready, cat="mark", name="last bucket ready")
            if exposed != UNKNOWN:
                self._counter(start, model, "exposed", ms=exposed / 1e6)
            if on_bus > 0 and busy > 0:
                self._counter(start, model, "busbw with waits", **{"GB/s": on_bus / busy})

    def _buckets(self) -> None:
        track, at, stages = self.rank.track, self.rank.at, self.rank.track.stages
        buckets, units = track.buckets, track.units()
        names = [name for name, _ in track.models]
        places = [_place(*one) for one in zip(units, buckets.bucket.tolist(), strict=True)]
        of_stages = (stages.name, stages.start, stages.end, stages.derived)
        every = [*zip(*(column.tolist() for column in of_stages), strict=True)]
        # Slices of a row by their start: a row is a bucket's, or of a sharded model a kind's.
        order = np.lexsort((at.ready, np.array([row for row, _ in places], int), buckets.model))
        columns = (
            *(np.arange(len(order)), buckets.model, buckets.step, buckets.bucket),
            *(at.ready, at.done, self.rank.phase, self.rank.flow),
            *(buckets.gradient_bytes, buckets.wire_bytes, buckets.exposed),
            *(buckets.having("untimed"), buckets.first_stage, buckets.stages),
        )
        for values in zip(*(column[order].tolist() for column in columns), strict=True):
            i, model, step, bucket, start, end, phase, flow, *more = values
            payload, sent, exposed, untimed, first, count = more
            unit = units[i]
            row, title = places[i]
            tid = self._row(self._tid(model, row), f"{names[model]}: {title}", start, end)
            is_gather = unit is not None and unit.collective == "all_gather"
            name = "parameter_bytes" if is_gather else "gradient_bytes"
            args = {"step": step, name: payload, **_known(wire_bytes=sent, exposed_ns=exposed)}
            args |= {"times": "of the host; the device's are unknown"} if untimed else {}
            self._slice(tid, start, end, **_named(unit, bucket), args=args)
            if phase:
                bind = {} if phase == 1 else {"bp": "e"}
                name = "same bucket" if unit is None else "same unit"
                self._event("?stf"[phase], start, cat="ranks", name=name, id=flow, tid=tid, **bind)
            self._nested(every[first : first + count], start, end, tid)
            error = track.errors[i].relative_l2 if i in track.errors else None
            if error is not None:
                self._mark(tid, end, cat="mark", name=f"error {error:.3g}")

    def _nested(
        self, stages: list[tuple[int, int, int, bool]], start: int, end: int, tid: int
    ) -> None:
        """Emit a bucket's stages, cut to it and to what those before left: slices must nest."""
        # An arrow binds to the innermost slice that is open: for one ns only the bucket is.
        cursor = start + 1
        for index, after, until, derived in stages:
            begin, finish = max(cursor, start + after), min(end, start + until)
            if finish > begin:
                cat, name = "derived" if derived else "stage", STAGE_NAMES[index]
                self._slice(tid, begin, finish, cat=cat, name=name)
                cursor = finish

    def _marks(self) -> None:
        records = self.rank.track.records
        times = self.rank.common([one.time_ns for one in records.anomalies])
        for at, one in zip(times, records.anomalies, strict=True):
            args = {"message": one.message, "step": one.step, "bucket": one.bucket}
            self._mark(0, at, cat="anomaly", name=one.kind, args=args)
        rows = {model: self._tid(i) for i, model in enumerate(self.rank.track.models)}
        times = self.rank.common([one.time_ns for one in records.layouts])
        for at, layout in zip(times, records.layouts, strict=True):
            tid = rows.get((layout.model, layout.hook))
            if tid in self._ends:
                what = "units" if any(one.unit for one in layout.buckets) else "bucket layout"
                # The layout of a removed part may be older than all that is drawn.
                name = f"{what}, generation {layout.generation}"
                self._mark(tid, max(at, self.origin_ns), cat="layout", name=name)

    def _hangs(self) -> None:
        """Emit the rank's part in each hang.

        One of which no end is known begins and does not end: Perfetto draws it to the end of the
        trace.
        """
        row = self._tid(len(self.rank.track.models))
        for hang in sorted(self.hangs, key=lambda one: one.start):
            record, rank = hang.record, self.rank.track.rank
            parts = {"waits": record.waiting, "is waited for": record.ranks}
            own = [part for part, ranks in parts.items() if rank in ranks]
            if not own:
                continue
            tid = self._row(row, "hangs", hang.start, inf if hang.end is None else hang.end)
            args = {
                "message": record.sentence, "outcome": hang.outcome, "kind": record.kind,
                "model": record.model, "step": record.step, "bucket": record.bucket,
                **({"unit": record.unit} if record.unit else {}),
            }  # fmt: skip
            fields: Event = {"cat": "hang", "name": f"hang: {' and '.join(own)}", "args": args}
            if hang.end is None:
                self._event("B", hang.start, tid=tid, **fields)
            else:
                self._slice(tid, hang.start, hang.end, **fields)

    def _others(self) -> None:
        """Emit the collectives that belong to no bucket; a mark each where no end is known."""
        found = [(one, of) for of in self.rank.track.records.others for one in of.collectives]
        starts = self.rank.common([one.issued_ns for one, _ in found])
        ends = self.rank.common([one.done_ns or one.issued_ns for one, _ in found])
        row = self._tid(len(self.rank.track.models) + 1)
        calls = sorted(zip(starts, ends, found, strict=True), key=lambda call: call[0])
        for start, end, (one, of) in calls:
            args = {
                "step": of.step, "model": of.model, "wire_bytes": one.wire_bytes,
                "where": one.where, "thread": one.thread, "of_ddp": one.of_ddp,
            }  # fmt: skip
            fields: Event = {"cat": "other collective", "name": one.name, "args": args}
            tid = self._row(row, "other collectives", start, max(start, end))
            if one.done_ns is None:
                self._mark(tid, start, **fields)
            else:
                self._slice(tid, start, max(start, end), **fields)


def _known(**values: int) -> Event:
    return {name: value for name, value in values.items() if value != UNKNOWN}


def _place(unit: Unit | None, bucket: int) -> tuple[int, str]:
    """Return which row of a model's a bucket has, or a unit's collective, and its title."""
    if unit is None:
        return 1 + bucket, f"bucket {bucket}"
    return 1 + UNIT_KINDS.index(unit.kind), unit.kind


def _named(unit: Unit | None, bucket: int) -> dict[str, str]:
    if unit is None:
        return {"cat": "bucket", "name": f"bucket {bucket}"}
    return {"cat": "unit", "name": unit.name + (f" #{unit.turn + 1}" if unit.turn else "")}
