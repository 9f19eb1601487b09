"""What critical paths consist of, over the steps of a run: in ns and in words.

Run, model --critical_path_sums--> PathSums: ns by kind, rank and bucket, of some steps
PathSums.ns, or sums_of one path --parts--> PathPart of each kind and rank, the largest first
PathSums --sentence--> ``of 100 ms: 61.0 ms compute of rank 2, 22.5 ms transfer of buckets 3-5``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ...records import Unit
from ...records.stall import ENOUGH_STEPS, is_stall
from ...records.units import listed, ms, percent
from .columns import UNKNOWN, Bools, Ints, RankTrack, StepColumns
from .counts import COUNTS, reasons
from .path import CriticalPaths, Kind, Segment
from .run import Run, once

_MOST_STEPS = 100
_LEAST_SHARE = 0.05
"""Of a part that a bucket has at least to be named, and of the path that a part has."""

_MOST_NAMES = 3
"""Of units in a part."""

_OF_RANK = ("compute", "compress", "decompress")
_BY_BUCKET = ("compress", "transfer", "queue", "decompress", "other")


@dataclass(frozen=True, slots=True)
class PathSums:
    """Paths of ``steps`` steps, a sample of the ``of`` that count; ns of all of them together.

    ``ns``: by kind, rank and bucket.  ``why_unknown``: a clause, where no step has a path.
    ``units``: of a sharded model what its buckets are.  ``beside``: models that communicate within
    its steps, as ``models_beside`` has them: what is compute here holds their collectives.
    """

    steps: int
    of: int
    length_ns: int
    ns: Counter[tuple[Kind, int, int]]
    why_unknown: str | None
    units: Mapping[int, Unit] = field(default_factory=dict)
    beside: tuple[str, ...] = ()


def sums_of(segments: Iterable[Segment]) -> Counter[tuple[Kind, int, int]]:
    """Return the ns of segments by kind, rank and bucket."""
    found: Counter[tuple[Kind, int, int]] = Counter()
    for one in segments:
        found[one.kind, one.rank, one.bucket] += one.end - one.start
    return found


def critical_path_sums(run: Run, model: str, *, most: int = _MOST_STEPS) -> PathSums:
    """Return what the paths of a model's steps consist of, of at most ``most`` steps.

    They are chosen by chance, always the same, of those that stand for all where the files have the
    buckets of some only.  Only steps count whose times count on all ranks
    (``counts.py``), without those that stalled: one would be longer than all others together.
    """
    paths = CriticalPaths(run, model)
    steps = _counted(run, model)
    of = np.intersect1d(steps, _standing_for(run, model))
    # Not every k-th: jobs repeat themselves, and a step of a kind would be all, or none.
    chosen = np.random.default_rng(0).permutation(of)[:most]
    every = [paths.of(step) for step in chosen.tolist()] if paths.why_unknown is None else []
    known = [path for path in every if path.why_unknown is None]
    why = paths.why_unknown or next((path.why_unknown for path in every), "no step counts")
    sums = sums_of(one for path in known for one in path.segments)
    length = sum(path.end - path.start for path in known)
    why = None if known else why
    beside = models_beside(run, model)
    return PathSums(len(known), len(steps), length, sums, why, paths.units, beside)


def _counted(run: Run, model: str) -> Ints:
    """Return the steps of a model that count on all ranks and have not stalled, ascending."""
    found, stalled = None, np.zeros(0, np.int64)
    for track, why in zip(run.tracks, reasons(run), strict=True):
        rows = np.flatnonzero(track.is_of(track.steps, model) & (why == COUNTS))
        own = track.steps.step[rows]
        found = np.unique(own) if found is None else np.intersect1d(found, own)
        stalled = np.append(stalled, own[_stalled(track.steps, rows)])
    return np.zeros(0, np.int64) if found is None else np.setdiff1d(found, stalled)


def _standing_for(run: Run, model: str) -> Ints:
    """Return the steps of which the buckets stand for all, on any rank."""
    found = [
        track.steps.step[
            track.steps.standing_for(track.is_of(track.steps, model) & (why == COUNTS))
        ]
        for track, why in zip(run.tracks, reasons(run), strict=True)
    ]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _stalled(steps: StepColumns, rows: Ints) -> Bools:
    """Return which of a rank's steps stalled, by its own usual ones; none of too few."""
    exposed, period = steps.exposed[rows], steps.period[rows]
    known = exposed != UNKNOWN, period != UNKNOWN
    if known[0].sum() < ENOUGH_STEPS or not known[1].any():
        return np.zeros(len(rows), np.bool_)
    usual = float(np.median(exposed[known[0]])), float(np.median(period[known[1]]))
    return np.array([is_stall(ns, *usual) for ns in exposed.tolist()], np.bool_)


class PathPart(NamedTuple):
    """What of paths is of one kind, and of one rank where that matters; ``ns`` of all of them.

    ``units``: of a sharded model what ``buckets`` are, whose collectives are of one kind.
    ``beside``: as in ``PathSums``.
    """

    kind: Kind
    rank: int
    buckets: tuple[int, ...]
    ns: int
    units: tuple[Unit, ...]
    beside: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """``compute of rank 2``."""
        ranks = [] if self.kind not in _OF_RANK else [_named(self.rank)]
        buckets = [] if self.kind not in _BY_BUCKET else [self._of]
        text = " of ".join([self.kind, ", ".join([*buckets, *ranks])])
        holds = self.beside if self.kind == "compute" else ()
        return " and ".join([text, *(f"all of {name}" for name in holds)])

    @property
    def _of(self) -> str:
        if not self.units:
            return _buckets(self.buckets)
        names = list(dict.fromkeys(unit.name for unit in self.units))
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"{self.units[0].kind} of {', '.join(names[:_MOST_NAMES])}{more}"


def parts(
    sums: Counter[tuple[Kind, int, int]],
    units: Mapping[int, Unit] = MappingProxyType({}),
    beside: tuple[str, ...] = (),
) -> list[PathPart]:
    """Return the parts, the largest first; of their buckets those that matter.

    ``units``: of a sharded model what its buckets are; each kind of collective is a part.
    ``beside``: as in ``PathSums``.
    """
    grouped: dict[tuple[Kind, int, str], Counter[int]] = {}
    for (kind, rank, bucket), ns in sums.items():
        what = units[bucket].kind if bucket in units and kind in _BY_BUCKET else ""
        of = kind, rank if kind in _OF_RANK else UNKNOWN, what
        grouped.setdefault(of, Counter())[bucket] += ns
    found = [
        PathPart(
            kind, rank, largest, by_bucket.total(),
            tuple(units[bucket] for bucket in largest if bucket in units), beside,
        )
        for (kind, rank, _), by_bucket in grouped.items()
        for largest in (_largest(by_bucket),)
    ]  # fmt: skip
    return sorted(found, key=lambda part: -part.ns)


def sentence(found: PathSums, *, most: int = 4) -> str:
    """Return what a usual step's path consists of, at most ``most`` parts; or why none is known."""
    if found.why_unknown is not None:
        return f"the critical path is not known: {found.why_unknown}"
    least = _LEAST_SHARE * found.length_ns
    every = [p for p in parts(found.ns, found.units, found.beside) if p.ns >= least]
    told = [f"{ms(part.ns / found.steps)} {part.text}" for part in every[:most]]
    left = 1 - sum(part.ns for part in every[:most]) / max(1, found.length_ns)
    rest = [f"the rest ({percent(left)}) elsewhere"] if left >= 0.01 else []
    return f"of {ms(found.length_ns / found.steps)}: " + ", ".join([*told, *rest])


def _largest(by_bucket: Counter[int]) -> tuple[int, ...]:
    least = _LEAST_SHARE * by_bucket.total()
    return tuple(sorted(bucket for bucket, ns in by_bucket.items() if ns >= least))


def _named(rank: int) -> str:
    return "a rank that clocks do not tell apart" if rank == UNKNOWN else f"rank {rank}"


def _buckets(buckets: tuple[int, ...]) -> str:
    return f"bucket{'s' if len(buckets) > 1 else ''} {listed(buckets)}"


@once
def models_beside(run: Run, model: str) -> tuple[str, ...]:
    """Return the models that a rank's hooks are called for in most of a model's steps.

    Nobody stamps what a process computes: it is what is left of a step without its model's own
    communication, and where another model has its turn meanwhile, that one's collectives are in it.
    """
    found = (name for track in run.tracks for name in _in_steps(track, model))
    return tuple(dict.fromkeys(found))


def _in_steps(track: RankTrack, model: str) -> list[str]:
    """Return the models of which a bucket was ready between most steps of a model and the next."""
    steps, names = track.steps, dict.fromkeys(name for name, _ in track.models)
    begins = np.sort(steps.first_ready[track.is_of(steps, model)])
    found = []
    for name in names if len(begins) > 1 else ():
        called = np.sort(track.buckets.called[track.is_of(track.buckets, name)])
        before = np.searchsorted(called, begins)
        if name != model and np.count_nonzero(np.diff(before)) > (len(begins) - 1) / 2:
            found.append(name)
    return found
