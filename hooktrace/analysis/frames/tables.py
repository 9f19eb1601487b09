"""A run as columns of numpy: of steps, buckets, stages, waits, ranks and models.

    each rank's columns + its clock + waits of each model --rank by rank--> Values --joined--> Made

Times are ns of rank 0's host clock.  A rank whose clock nobody measured stands by its wall clock,
and its ``clock_uncertainty_ns`` is not known; where rank 0's file is missing too, its times are not
known.  Wall-clock times are rank 0's machine's, or where its file is missing, the rank's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...records import RunInfo
from ..run import COUNTS, STAGE_NAMES, UNKNOWN, Bools, Ints, RankTrack, Run, reasons, waits
from ..run.waits import Waited

Array = npt.NDArray[Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Values:
    """One column: numbers or text, where they are known (``None``: everywhere).

    ``names``: of a category, whose ``data`` are indices into them.
    """

    data: Array
    known: Bools | None = None
    names: tuple[str, ...] | None = None

    def at(self, rows: Bools) -> Values:
        """Return some rows."""
        return Values(self.data[rows], None if self.known is None else self.known[rows], self.names)

    @property
    def unknown(self) -> Bools:
        """Where nothing is known."""
        return np.zeros(len(self.data), np.bool_) if self.known is None else ~self.known


Made = dict[str, Values]
"""By the names of ``columns.py``, in no order, and perhaps some more."""


class _Rank:
    """One rank's share: columns, clock, which steps count, and what it waited for others."""

    def __init__(self, tables: _AllRanks, index: int) -> None:
        self.track: RankTrack = tables.run.tracks[index]
        self._clock = tables.run.clocks[index]
        self.why = tables.reasons[index]
        self._tables, own = tables, self.track.records.run
        anchor = tables.reference or own
        self._is_placed = self._clock.is_known or None not in (tables.reference, own)
        self._wall_is_own = tables.reference is None
        self._to_wall = None if anchor is None else anchor.wall_anchor_ns - anchor.host_anchor_ns
        self.waited = _of_any([found.whole(index) for found in tables.waits])
        self.bucket_waited = _of_any([found.by_bucket(index) for found in tables.waits])

    def times(self, column: str, host: Ints, known: Bools | None = None) -> Made:
        """Return times of day by rank 0's clock, under a name."""
        known = np.ones(len(host), np.bool_) if known is None else known
        return {column: Values(self._clock.common(host), known & self._is_placed)}

    def wall(self, host: Ints, known: Bools | None = None) -> Made:
        """Return the wall-clock time, ns since the epoch, and the clock's uncertainty."""
        known = np.ones(len(host), np.bool_) if known is None else known
        at = host if self._wall_is_own else self._clock.common(host)
        unsure = self._clock.uncertainty(host)
        has_wall = self._to_wall is not None and (self._is_placed or self._wall_is_own)
        return {
            "time": Values(at + (self._to_wall or 0), known & has_wall),
            "clock_uncertainty_ns": Values(unsure, known & (unsure != UNKNOWN)),
        }

    def whose(self, model: Ints, **columns: Ints) -> Made:
        """Return model, hook and rank of rows, and columns as they are."""
        names = self.track.models
        return {
            "model": self._tables.category("model", [name for name, _ in names], model),
            "hook": self._tables.category("hook", [hook for _, hook in names], model),
            "rank": Values(np.full(len(model), self.track.rank)),
            **{name: Values(values.astype(np.int64)) for name, values in columns.items()},
        }

    def category(self, column: str, names: list[str], codes: Ints) -> Values:
        """Return a column of names, each of which stands once."""
        return self._tables.category(column, names, codes)


def _of_any(of_models: list[Waited]) -> Waited:
    """Return the waits of all models; each row is of one of them, and unknown of the others."""
    return Waited(*np.max(of_models, axis=0))


class _AllRanks:
    """What the ranks have in common."""

    def __init__(self, run: Run) -> None:
        self.run = run
        runs = (track.records.run for track in run.tracks)
        self.reference: RunInfo | None = next((r for r in runs if r and r.rank == 0), None)
        self.waits = [waits(run, model) for model in run.model_names]
        self.reasons = reasons(run)
        tracks = run.tracks
        self._names = {
            "model": _distinct(name for t in tracks for name, _ in t.models),
            "hook": _distinct(hook for t in tracks for _, hook in t.models),
            "dtype": _distinct(f.dtype for t in tracks for f in t.facts),
            "stage": STAGE_NAMES,
        }

    def category(self, column: str, names: list[str], codes: Ints) -> Values:
        every = self._names[column]
        place = np.array([every.index(name) for name in names], np.int64)
        return Values(place[codes], names=tuple(every))

    def joined(self, table: Callable[[_Rank], Made]) -> Made:
        """Return what ``table`` gives for each rank, one rank after another."""
        parts = [table(_Rank(self, i)) for i in range(len(self.run.tracks))]
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def steps_table(run: Run) -> Made:
    """Return the columns of ``columns.STEPS``; at least one rank."""
    return _AllRanks(run).joined(_steps)


def buckets_table(run: Run) -> Made:
    """Return the columns of ``columns.BUCKETS``; at least one rank."""
    return _AllRanks(run).joined(_buckets)


def stages_table(run: Run) -> Made:
    """Return the columns of ``columns.STAGES``; at least one rank."""
    return _AllRanks(run).joined(_stages)


def waits_table(run: Run) -> Made:
    """Return the columns of ``columns.WAITS``: the wire stages; at least one rank."""
    return _AllRanks(run).joined(_waits)


def ranks_table(run: Run) -> Made:
    """Return the columns of ``columns.RANKS``."""
    tracks, why = run.tracks, reasons(run)
    runs = [track.records.run for track in tracks]
    known = np.array([info is not None for info in runs])
    return {
        "rank": Values(np.array([track.rank for track in tracks])),
        **{
            name: Values(np.array([getattr(info, name, None) for info in runs], object))
            for name in ("host", "torch_version", "backend")
        },
        **{
            name: Values(np.array([getattr(info, name, 0) for info in runs]), known)
            for name in ("pid", "local_rank")
        },
        "clock_known": Values(np.array([clock.is_known for clock in run.clocks])),
        "steps": Values(np.array([len(track.steps) for track in tracks])),
        "counts": Values(np.array([np.count_nonzero(one == COUNTS) for one in why])),
        "closed": Values(np.array([track.records.closed for track in tracks])),
        "unread": Values(
            np.array([len(t.records.skipped) + t.records.unnamed for t in tracks], np.int64)
        ),
    }


def models_table(run: Run) -> Made:
    """Return the columns of ``columns.MODELS``; a row for each hook that a model had."""
    why = reasons(run)
    pairs = _distinct(pair for track in run.tracks for pair in track.models)
    rows = []
    for name, hook in pairs:
        steps, counting, generations, ranks, is_sharded = set(), set(), set(), 0, False
        for track, reason in zip(run.tracks, why, strict=True):
            if (name, hook) not in track.models:
                continue
            mine = track.steps.model == track.models.index((name, hook))
            steps |= set(track.steps.step[mine].tolist())
            counting |= set(track.steps.step[mine & (reason == COUNTS)].tolist())
            generations |= set(track.steps.generation[mine].tolist())
            ranks += bool(mine.any())
            is_sharded |= bool(track.steps.having("sharded")[mine].any())
        unknown = waits(run, name).why_unknown
        rows.append(
            (name, hook, is_sharded, ranks, len(generations), len(steps), len(counting), unknown)
        )
    names = ("model", "hook", "sharded", "ranks", "generations", "steps", "counts", "waits_unknown")
    kinds = (object, object, np.bool_, np.int64, np.int64, np.int64, np.int64, object)
    return {
        name: Values(np.array([row[i] for row in rows], kind))
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }


def _steps(own: _Rank) -> Made:
    steps = own.track.steps
    durations = {"period_ns": steps.period, "exposed_ns": steps.exposed, "busy_ns": steps.busy}
    sizes = {name: getattr(steps, name) for name in ("gradient_bytes", "wire_bytes", "bus_bytes")}
    counts = own.why == COUNTS
    stands = np.zeros(len(steps), np.bool_)
    for number in range(len(own.track.models)):
        stands |= steps.standing_for(counts & (steps.model == number))
    return {
        **own.whose(steps.model, step=steps.step, generation=steps.generation),
        **own.wall(steps.first_ready),
        **own.times("first_ready_ns", steps.first_ready),
        **own.times("last_ready_ns", steps.last_ready),
        **own.times("done_ns", steps.done),
        **_known({**durations, "wire_busy_ns": steps.wire_busy, **sizes}),
        "bucket_count": Values(steps.bucket_count.astype(np.int64)),
        **{flag: Values(steps.having(flag)) for flag in ("warmup", "shadow", "probed")},
        "sharded": Values(steps.having("sharded")),
        "complete": Values(~steps.having("incomplete")),
        "counts": Values(counts),
        "stands_for_all": Values(stands),
    }


def _buckets(own: _Rank) -> Made:
    buckets, track = own.track.buckets, own.track
    timed = ~buckets.having("untimed")
    sized = np.array([fact.dtype != "unknown" for fact in track.facts], np.bool_)[buckets.facts]
    wait = own.bucket_waited.ns
    wires = track.time_in_stages()[:, STAGE_NAMES.index("wire")]
    transfer = np.where(wait == UNKNOWN, UNKNOWN, wires - wait)
    return {
        **own.whose(
            buckets.model, step=buckets.step, generation=buckets.generation, bucket=buckets.bucket
        ),
        "is_last": Values(buckets.having("is_last")),
        **_units(track),
        **_known({"exposed_ns": buckets.exposed}),
        "dtype": own.category("dtype", [fact.dtype for fact in track.facts], buckets.facts),
        **own.wall(buckets.called),
        **own.times("called_ns", buckets.called),
        **own.times("launched_ns", buckets.called + buckets.launched_after),
        **own.times("ready_ns", buckets.ready, timed),
        **own.times("done_ns", buckets.done, timed),
        "duration_ns": Values(buckets.done - buckets.ready, timed),
        **_known({"wait_ns": wait, "transfer_ns": transfer}),
        "gradient_bytes": Values(buckets.gradient_bytes.astype(np.int64), sized),
        **_known({"wire_bytes": buckets.wire_bytes, "bus_bytes": buckets.bus_bytes}),
        "error_relative_l2": _of_errors(track, "relative_l2"),
        "error_cosine": _of_errors(track, "cosine"),
        "exception": _exceptions(track),
        **{flag: Values(buckets.having(flag)) for flag in ("warmup", "shadow", "probed")},
    }


def _stages(own: _Rank) -> Made:
    buckets, stages, of = own.track.buckets, own.track.stages, own.track.bucket_of_stages()
    timed, ready = ~buckets.having("untimed")[of], buckets.ready[of]
    length = stages.end.astype(np.int64) - stages.start
    waited, last = own.waited
    transfer = np.where(waited == UNKNOWN, UNKNOWN, length - waited)
    ranks = np.array([track.rank for track in own._tables.run.tracks])
    return {
        **own.whose(
            buckets.model[of],
            step=buckets.step[of],
            generation=buckets.generation[of],
            bucket=buckets.bucket[of],
        ),
        "stage": own.category("stage", list(STAGE_NAMES), stages.name.astype(np.int64)),
        **own.wall(ready + stages.start, timed),
        **own.times("start_ns", ready + stages.start, timed),
        **own.times("end_ns", ready + stages.end, timed),
        "duration_ns": Values(length, timed),
        **_known({"wait_ns": waited, "transfer_ns": transfer}),
        "waited_for": Values(ranks[last], last != UNKNOWN),
        "derived": Values(stages.derived),
    }


def _waits(own: _Rank) -> Made:
    """Return the wire stages."""
    rows = own.track.stages.name == STAGE_NAMES.index("wire")
    return {name: values.at(rows) for name, values in _stages(own).items()}


def _of_errors(track: RankTrack, field: str) -> Values:
    found = np.full(len(track.buckets), np.nan)
    for row, error in track.errors.items():
        value = getattr(error, field)
        found[row] = np.nan if value is None else value
    return Values(found)


def _units(track: RankTrack) -> Made:
    """Return which collective of which unit each bucket is; nothing of DDP's."""
    facts, of = [fact.unit for fact in track.facts], track.buckets.facts

    def text(field: str) -> Values:
        return Values(np.array([getattr(unit, field, None) for unit in facts], object)[of])

    turns = np.array([UNKNOWN if unit is None else unit.turn for unit in facts], np.int64)[of]
    return {
        "unit": text("name"),
        "collective": text("collective"),
        "phase": text("phase"),
        **_known({"turn": turns}),
    }


def _exceptions(track: RankTrack) -> Values:
    found = np.full(len(track.buckets), None, object)
    for row, text in track.exceptions.items():
        found[row] = text
    return Values(found)


def _known(columns: dict[str, Ints]) -> Made:
    return {
        name: Values(values.astype(np.int64), values != UNKNOWN) for name, values in columns.items()
    }


def _joined(parts: list[Values]) -> Values:
    known = None
    if parts[0].known is not None:
        known = np.concatenate([part.known for part in parts if part.known is not None])
    return Values(np.concatenate([part.data for part in parts]), known, parts[0].names)


def _distinct(names: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(names))
