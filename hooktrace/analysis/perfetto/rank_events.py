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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...records import UNIT_KINDS, LayoutRecord, Unit
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


@dataclass(frozen=True, slots=True)
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
    times = [np.array([one.start for one in hangs], np.int64)]
    for one in ranks:
        marks = np.array([a.time_ns for a in one.track.records.anomalies], np.int64)
        host = np.concatenate([one.track.steps.first_ready, marks])
        times += [one.at.ready, one.clock.common(host)]
    return int(np.concatenate(times).min(initial=np.iinfo(np.int64).max))


Event = dict[str, Any]

_ROWS_PER_MODEL = 10_000
_ROWS_PER_OVERLAP = 1_000_000
_SAME_BUCKET = {"cat": "ranks", "name": "same bucket"}
_SAME_UNIT = {"cat": "ranks", "name": "same unit"}


@dataclass(slots=True)
class RankEvents:
    """Events of one rank, in ns after ``origin_ns``; knows where its rows end.

    ``why``: of each of its steps the place in ``REASONS``.
    """

    rank: TiedRank
    origin_ns: int
    why: Ints
    hangs: Sequence[Hang] = ()
    _ends: dict[int, int] = field(default_factory=dict)

    def events(self) -> Iterator[Event]:
        """Yield the rank's events; a slice comes before those within it."""
        number, run = self.rank.track.rank, self.rank.track.records.run
        name = f"rank {number}" if run is None else f"rank {number} ({run.host})"
        known = self.rank.clock.is_known
        yield self._meta("process_name", name=name if known else f"{name}, clock unknown")
        yield self._meta("process_sort_index", sort_index=number)
        if not known:
            yield self._meta("process_labels", labels="clock unknown: placed by wall clock")
        yield from self._steps()
        yield from self._buckets()
        yield from self._marks()
        yield from self._hangs()
        yield from self._others()

    def _meta(self, name: str, tid: int = 0, /, **args: object) -> Event:
        return {"ph": "M", "name": name, "pid": self.rank.track.rank, "tid": tid, "args": args}

    def _at(self, common_ns: int, ph: str, **fields: object) -> Event:
        ts = (common_ns - self.origin_ns) / 1000
        return {"ph": ph, "pid": self.rank.track.rank, "ts": ts, **fields}

    def _slice(self, start: int, end: int, **fields: object) -> Event:
        return self._at(start, "X", dur=(end - start) / 1000, **fields)

    def _instant(self, common_ns: int, tid: int, **fields: object) -> Event:
        scope = "t" if tid else "p"  # of the row, or of all rows of the rank
        return self._at(common_ns, "i", s=scope, tid=tid, **fields)

    def _counter(self, common_ns: int, model: int, name: str, **value: float) -> Event:
        title = f"{self.rank.track.models[model][0]} {name}"
        return self._at(common_ns, "C", cat="counter", name=title, args=value)

    def _row(
        self, model: int, row: int, title: str, start: int, end: int
    ) -> tuple[int, list[Event]]:
        """Return the tid for a slice, one more where it would overlap, and events that name it."""
        tid = self._first_row(model) + row
        overlap = 0
        while self._ends.get(tid, start) > start:
            tid += _ROWS_PER_OVERLAP
            overlap += 1
        names = []
        if tid not in self._ends:
            title = f"{self.rank.track.models[model][0]}: {title}"
            title += f" (overlap {overlap})" if overlap else ""
            names = [
                self._meta("thread_name", tid, name=title),
                self._meta("thread_sort_index", tid, sort_index=tid),
            ]
        self._ends[tid] = end
        return tid, names

    def _steps(self) -> Iterator[Event]:
        steps, at = self.rank.track.steps, self.rank.at
        columns = (
            *(steps.model, steps.step, at.first_ready, at.ended, steps.exposed),
            *(steps.wire_bytes, steps.gradient_bytes, at.last_ready),
            *(steps.bus_bytes, steps.wire_busy, steps.having("sharded"), self.why),
        )
        for values in zip(*(column.tolist() for column in columns), strict=True):
            model, step, start, end, exposed, sent, payload, last_ready, on_bus, *more = values
            busy, sharded, why = more
            tid, names = self._row(model, 0, "steps", start, end)
            yield from names
            name = "payload_bytes" if sharded else "gradient_bytes"
            sizes = {name: payload, "wire_bytes": sent, "exposed_ns": exposed}
            args: Event = {name: value for name, value in sizes.items() if value != UNKNOWN}
            args |= {} if why == COUNTS else {"left_out": REASONS[why]}
            yield self._slice(start, end, cat="step", name=f"step {step}", tid=tid, args=args)
            if exposed > 0 and not sharded:
                begin = max(start, end - exposed)
                yield self._slice(begin, end, cat="exposed", name="exposed", tid=tid)
            if start <= last_ready <= end and not sharded:
                yield self._instant(last_ready, tid, cat="mark", name="last bucket ready")
            if exposed != UNKNOWN:
                yield self._counter(start, model, "exposed", ms=exposed / 1e6)
            if on_bus > 0 and busy > 0:
                yield self._counter(start, model, "busbw with waits", **{"GB/s": on_bus / busy})

    def _buckets(self) -> Iterator[Event]:
        track, placed = self.rank.track, self.rank.at
        buckets, of_stages = track.buckets, track.stages
        fields = (of_stages.name, of_stages.start, of_stages.end, of_stages.derived)
        stages = list(zip(*(one.tolist() for one in fields), strict=True))
        units = track.units()
        # Slices of a row by their start: a row is a bucket's, or of a sharded model a kind's.
        rows = np.array(
            [row_of(*one)[0] for one in zip(units, buckets.bucket.tolist(), strict=True)], np.int64
        )
        order = np.lexsort((placed.ready, rows, buckets.model))
        columns = (
            *(np.arange(len(order)), buckets.model, buckets.step, buckets.bucket),
            *(buckets.gradient_bytes, buckets.wire_bytes, buckets.having("untimed")),
            *(buckets.first_stage, buckets.stages),
            *(placed.ready, placed.done, self.rank.phase, self.rank.flow, buckets.exposed),
        )
        for values in zip(*(column[order].tolist() for column in columns), strict=True):
            row, model, step, bucket, gradients, sent, untimed, first, count, *times = values
            start, end, phase, flow, exposed = times
            unit = units[row]
            tid, names = self._row(model, *row_of(unit, bucket), start, end)
            yield from names
            args = {"step": step, **_payload(unit, gradients)}
            args |= {"wire_bytes": sent} if sent != UNKNOWN else {}
            args |= {"exposed_ns": exposed} if exposed != UNKNOWN else {}
            args |= {"times": "of the host; the device's are unknown"} if untimed else {}
            named = _named(unit, bucket)
            yield self._slice(start, end, **named, tid=tid, args=args)
            if phase:
                bind = {} if phase == 1 else {"bp": "e"}
                same = _SAME_BUCKET if unit is None else _SAME_UNIT
                yield self._at(start, "?stf"[phase], id=flow, tid=tid, **same, **bind)
            yield from self._stages_of(stages[first : first + count], start, end, tid)
            error = track.errors[row].relative_l2 if row in track.errors else None
            if error is not None:
                yield self._instant(end, tid, cat="mark", name=f"error {error:.3g}")

    def _stages_of(
        self, stages: list[tuple[int, int, int, bool]], start: int, end: int, tid: int
    ) -> Iterator[Event]:
        """Yield a bucket's stages, cut to it and to what those before left: slices must nest."""
        # An arrow binds to the innermost slice that is open: for one ns only the bucket is.
        cursor = start + 1
        for index, after, until, derived in stages:
            begin, finish = max(cursor, start + after), min(end, start + until)
            if finish > begin:
                cat, name = "derived" if derived else "stage", STAGE_NAMES[index]
                yield self._slice(begin, finish, cat=cat, name=name, tid=tid)
                cursor = finish

    def _marks(self) -> Iterator[Event]:
        records = self.rank.track.records
        for anomaly in records.anomalies:
            args = {"message": anomaly.message, "step": anomaly.step, "bucket": anomaly.bucket}
            at = self._common(anomaly.time_ns)
            yield self._instant(at, 0, cat="anomaly", name=anomaly.kind, args=args)
        rows = {model: self._first_row(i) for i, model in enumerate(self.rank.track.models)}
        for layout in records.layouts:
            tid = rows.get((layout.model, layout.hook))
            if tid in self._ends:
                # The layout of a removed part may be older than all that is drawn.
                at = max(self._common(layout.time_ns), self.origin_ns)
                name = f"{_laid_out(layout)}, generation {layout.generation}"
                yield self._instant(at, tid, cat="layout", name=name)

    def _hangs(self) -> Iterator[Event]:
        """Yield the rank's part in each hang, in the first row in which it overlaps no other.

        One of which no end is known begins and does not end: Perfetto draws it to the end of the
        trace.
        """
        rows = self._rows_below(0, "hangs")
        for hang in sorted(self.hangs, key=lambda one: one.start):
            record, rank = hang.record, self.rank.track.rank
            parts = ["waits"] * (rank in record.waiting) + ["is waited for"] * (
                rank in record.ranks
            )
            if not parts:
                continue
            tid, names = rows.take(hang.start, hang.end)
            yield from names
            args = {
                "message": record.sentence, "outcome": hang.outcome, "kind": record.kind,
                "model": record.model, "step": record.step, "bucket": record.bucket,
                **({"unit": record.unit} if record.unit else {}),
            }  # fmt: skip
            name = f"hang: {' and '.join(parts)}"
            fields = {"cat": "hang", "name": name, "tid": tid, "args": args}
            if hang.end is None:
                yield self._at(hang.start, "B", **fields)
            else:
                yield self._slice(hang.start, hang.end, **fields)

    def _others(self) -> Iterator[Event]:
        """Yield the collectives that belong to no bucket; a mark each where no end is known."""
        rows, title = self._rows_below(1, "other collectives"), "other collective"
        found = [(one, of) for of in self.rank.track.records.others for one in of.collectives]
        for one, of in sorted(found, key=lambda pair: pair[0].issued_ns):
            start = self._common(one.issued_ns)
            end = start if one.done_ns is None else max(start, self._common(one.done_ns))
            tid, names = rows.take(start, end)
            yield from names
            args = {
                "step": of.step, "model": of.model, "wire_bytes": one.wire_bytes,
                "where": one.where, "thread": one.thread, "of_ddp": one.of_ddp,
            }  # fmt: skip
            fields: Event = {"cat": title, "name": one.name, "args": args}
            if one.done_ns is None:
                yield self._instant(start, tid, **fields)
            else:
                yield self._slice(start, end, tid=tid, **fields)

    def _rows_below(self, kind: int, title: str) -> _Rows:
        return _Rows(self, self._first_row(len(self.rank.track.models) + kind), title)

    def _common(self, host_ns: int) -> int:
        return int(self.rank.clock.common(np.array([host_ns]))[0])

    def _first_row(self, model: int) -> int:
        # Perfetto shows threads in the order of their tids.  They start above the pid: a thread
        # whose tid is its pid counts as the process's main thread.
        return self.rank.track.rank + 1 + model * _ROWS_PER_MODEL


@dataclass(slots=True)
class _Rows:
    """Rows of one title for slices that overlap: each goes to the first one in which it does not.

    An end of ``None`` is never over.
    """

    events: RankEvents
    first: int
    title: str
    ends: list[int | None] = field(default_factory=list)

    def take(self, start: int, end: int | None) -> tuple[int, list[Event]]:
        """Return the tid for a slice, and events that name it if it is new."""
        free = (i for i, before in enumerate(self.ends) if before is not None and before <= start)
        row = next(free, len(self.ends))
        tid, names = self.first + row, list[Event]()
        if row == len(self.ends):
            names = [
                self.events._meta("thread_name", tid, name=self.title),
                self.events._meta("thread_sort_index", tid, sort_index=tid),
            ]
        self.ends[row : row + 1] = [end]
        return tid, names


def row_of(unit: Unit | None, bucket: int) -> tuple[int, str]:
    """Return which row of a model's a bucket has, or a unit's collective, and its title."""
    if unit is None:
        return 1 + bucket, f"bucket {bucket}"
    return 1 + UNIT_KINDS.index(unit.kind), unit.kind


def _named(unit: Unit | None, bucket: int) -> dict[str, str]:
    if unit is None:
        return {"cat": "bucket", "name": f"bucket {bucket}"}
    return {"cat": "unit", "name": unit.name + (f" #{unit.turn + 1}" if unit.turn else "")}


def _payload(unit: Unit | None, count: int) -> dict[str, int]:
    is_gather = unit is not None and unit.collective == "all_gather"
    return {"parameter_bytes" if is_gather else "gradient_bytes": count}


def _laid_out(layout: LayoutRecord) -> str:
    return "units" if any(bucket.unit for bucket in layout.buckets) else "bucket layout"
