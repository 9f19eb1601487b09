"""Ranks side by side in one clock, and who was ready last.

    find_traces(logdir) --> files by rank --load--> Timeline --arrivals--> Arrivals of one model

A bucket's *arrival* is the time at which its hook was called.  Durations cannot show a late rank:
an all-reduce ends on all ranks at once, so the ranks that wait look as slow as the one they wait
for.  Of a bucket's arrivals the last one is blamed only if it is later than the next by more than
the two clocks may be off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from ...records import RunInfo
from ...records.trace_format import find_traces
from .clock import RankClock
from .columns import UNKNOWN, Ints, RankTrack, read_track

__all__ = ["Arrivals", "Timeline", "arrivals", "find_traces", "load", "timeline_of"]


@dataclass(slots=True)
class Timeline:
    """The ranks of one run, in ascending order, each with its clock.

    ``other_runs``: tracks of another run than most of the ranks', which are not among ``tracks``.
    """

    tracks: list[RankTrack]
    clocks: list[RankClock]
    other_runs: list[RankTrack]

    @property
    def run(self) -> RunInfo | None:
        """The run of the lowest rank that tells."""
        return next((t.trace.run for t in self.tracks if t.trace.run is not None), None)

    @property
    def models(self) -> list[str]:
        """The names of all models, in order of appearance."""
        return list(dict.fromkeys(name for track in self.tracks for name, _ in track.models))

    @property
    def unaligned(self) -> list[int]:
        """The ranks whose clock nobody measured: they are placed by their wall clocks."""
        if len(self.tracks) < 2:
            return []
        return [t.rank for t, c in zip(self.tracks, self.clocks, strict=True) if not c.is_known]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When each rank had each bucket of one model ready, in rank 0's clock.

    ``ready`` and ``uncertainty`` have shape (ranks, keys); ``ready`` is ``UNKNOWN`` where a rank
    has no such bucket in its file, ``uncertainty`` where its clock is unknown.  ``step`` and
    ``bucket`` (keys,) ascend.  Shadows and buckets of device times that are unresolved count: they
    were called on the host.
    """

    ranks: list[int]
    step: Ints
    bucket: Ints
    ready: Ints
    uncertainty: Ints

    def lag(self) -> Ints:
        """Return ns after the first rank that is known, (ranks, keys); ``UNKNOWN`` stays."""
        known = self.ready != UNKNOWN
        first = np.where(known, self.ready, np.iinfo(np.int64).max).min(axis=0, initial=2**62)
        found: Ints = np.where(known, self.ready - first, UNKNOWN)
        return found

    def late(self) -> tuple[Ints, Ints]:
        """Return the row of the last rank of each key and its margin to the next, ns.

        The row is ``UNKNOWN`` where the clocks do not tell the two apart, or one is missing.
        """
        keys = self.ready.shape[1]
        if len(self.ranks) < 2:
            return np.full(keys, UNKNOWN), np.zeros(keys, np.int64)
        order = np.argsort(self.ready, axis=0, kind="stable")
        last, next_ = order[-1], order[-2]
        column = np.arange(keys)
        margin = self.ready[last, column] - self.ready[next_, column]
        of_last, of_next = self.uncertainty[last, column], self.uncertainty[next_, column]
        told = (
            (self.ready != UNKNOWN).all(axis=0)
            & (of_last != UNKNOWN)
            & (of_next != UNKNOWN)
            & (margin > of_last + of_next)
        )
        return np.where(told, last, UNKNOWN), margin


def load(
    traces: dict[int, list[Path]],
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Timeline:
    """Read the files of many ranks, in ``processes`` at once: as many as there are cores.

    ``progress`` is told, after each rank, how many bytes of how many have been read.  Raises
    ``OSError`` for a file that cannot be opened.
    """
    files = [traces[rank] for rank in sorted(traces)]
    sizes = [sum(path.stat().st_size for path in paths) for paths in files]
    total, done = sum(sizes), 0
    tracks = []
    for track, size in zip(_tracks(files, total, processes), sizes, strict=True):
        tracks.append(track)
        done += size
        if progress is not None:
            progress(done, total)
    return timeline_of(tracks)


def _tracks(files: list[list[Path]], size: int, processes: int | None) -> Iterator[RankTrack]:
    processes = min(len(files), processes or len(os.sched_getaffinity(0)))
    if processes < 2 or size < _WORTH_IT:
        yield from map(read_track, files)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(read_track, files)


_WORTH_IT = 32 << 20
"""Bytes from which on starting processes takes less time than it saves."""


def timeline_of(tracks: Sequence[RankTrack]) -> Timeline:
    """Put tracks side by side; those of another run than most go to ``other_runs``."""
    runs = [t.trace.run.run_id for t in tracks if t.trace.run is not None]
    common = max(dict.fromkeys(runs), key=runs.count, default=None)
    ours = [t for t in tracks if t.trace.run is None or t.trace.run.run_id == common]
    ours.sort(key=lambda t: t.rank)
    reference = next((t.trace.run for t in ours if t.trace.run and t.trace.run.rank == 0), None)
    return Timeline(
        tracks=ours,
        clocks=[RankClock(t.trace.run, t.trace.clocks, reference) for t in ours],
        other_runs=[t for t in tracks if all(t is not one for one in ours)],
    )


def arrivals(timeline: Timeline, model: str) -> Arrivals:
    """Return when each rank had each bucket of a model ready."""
    keys, ready, uncertainty = [], [], []
    for track, clock in zip(timeline.tracks, timeline.clocks, strict=True):
        ids = [i for i, (name, _) in enumerate(track.models) if name == model]
        rows = np.isin(track.buckets.model, ids)
        host = track.buckets.called[rows]
        keys.append(track.buckets.step[rows] << _BITS | track.buckets.bucket[rows])
        ready.append(clock.common(host))
        uncertainty.append(clock.uncertainty(host))
    every: Ints = np.unique(np.concatenate(keys)) if keys else np.zeros(0, np.int64)
    shape = (len(timeline.tracks), len(every))
    all_ready, all_uncertainty = np.full(shape, UNKNOWN), np.full(shape, UNKNOWN)
    for i, own in enumerate(keys):
        places = np.searchsorted(every, own)
        all_ready[i, places], all_uncertainty[i, places] = ready[i], uncertainty[i]
    return Arrivals(
        ranks=[track.rank for track in timeline.tracks],
        step=every >> _BITS,
        bucket=every & ((1 << _BITS) - 1),
        ready=all_ready,
        uncertainty=all_uncertainty,
    )


_BITS = 20
"""Of a key, for the bucket's index."""
