"""Ranks side by side, each with its clock.

find_records(logdir) --> files by rank --load, a process a core--> Timeline
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...records import CLOCK_DRIFT, ClockRecord, RunInfo
from ...records.base import MOST_RANKS
from ...records.files import size_of
from .columns import UNKNOWN, Ints, RankTrack
from .follow import processes_for
from .read_columns import read_track


class RankClock:
    """Turns one rank's host times into rank 0's, as far as its measurements say.

    Between two measurements the offset is interpolated; before the first and after the last it is
    taken as constant, and its uncertainty grows with the distance by ``CLOCK_DRIFT``.  A rank
    without measurements is placed by its wall clock, and its uncertainty is unknown: two hosts'
    wall clocks may be any time apart.

    ``reference``: the run of rank 0, ``None`` where its file is missing; a rank without
    measurements then keeps its own wall clock.
    """

    def __init__(
        self, run: RunInfo | None, clocks: Sequence[ClockRecord], reference: RunInfo | None
    ) -> None:
        ordered = sorted(clocks, key=lambda c: c.time_ns)
        self._at = np.array([c.time_ns for c in ordered], dtype=np.int64)
        self._offset = np.array([c.offset_ns for c in ordered], dtype=np.int64)
        self._uncertainty = np.array([c.uncertainty_ns for c in ordered], dtype=np.int64)
        self._is_reference = run is not None and run.rank == 0
        self._by_wall = 0
        if run is not None and reference is not None and not self._is_reference:
            self._by_wall = (run.wall_anchor_ns - run.host_anchor_ns) - (
                reference.wall_anchor_ns - reference.host_anchor_ns
            )

    @property
    def is_known(self) -> bool:
        """Whether the clock was measured, or is rank 0's own."""
        return self._is_reference or len(self._at) > 0

    def common(self, host_ns: Ints) -> Ints:
        """Return the times in rank 0's host clock, ns."""
        if self._is_reference:
            return host_ns
        if not len(self._at):
            return host_ns + self._by_wall
        # Offsets may be larger than a double holds to the ns: interpolate what differs.
        base = int(self._offset[0])
        moved = np.interp(
            (host_ns - self._at[0]).astype(np.float64),
            (self._at - self._at[0]).astype(np.float64),
            (self._offset - base).astype(np.float64),
        )
        found: Ints = host_ns + base + np.rint(moved).astype(np.int64)
        return found

    def uncertainty(self, host_ns: Ints) -> Ints:
        """Return by how much ``common`` may be off, ns; ``UNKNOWN`` where nobody measured."""
        if self._is_reference:
            return np.zeros_like(host_ns)
        if not len(self._at):
            return np.full_like(host_ns, UNKNOWN)
        after = np.clip(np.searchsorted(self._at, host_ns), 0, len(self._at) - 1)
        before = np.clip(after - 1, 0, None)
        outside = np.maximum(self._at[0] - host_ns, 0) + np.maximum(host_ns - self._at[-1], 0)
        between = np.maximum(self._uncertainty[before], self._uncertainty[after])
        ends = np.where(host_ns < self._at[0], self._uncertainty[0], self._uncertainty[-1])
        inside = outside == 0
        found: Ints = np.where(inside, between, ends + np.rint(outside * CLOCK_DRIFT)).astype(
            np.int64
        )
        return found


class Unread(NamedTuple):
    """A rank's first file, and why nothing of it is there."""

    rank: int
    file: str
    why: str


@dataclass(slots=True)
class Timeline:
    """The ranks of one run, in ascending order, each with its clock.

    ``other_runs``: tracks of earlier runs, which are not among ``tracks``.  ``unread``: files of
    which nothing is, each with the reason.
    """

    tracks: list[RankTrack]
    clocks: list[RankClock]
    other_runs: list[RankTrack]
    unread: list[Unread] = field(default_factory=list)

    @property
    def run(self) -> RunInfo | None:
        """The run of the lowest rank that tells."""
        return next((t.records.run for t in self.tracks if t.records.run is not None), None)

    @property
    def models(self) -> list[str]:
        """The names of all models, in order of appearance; also of those that only hung."""
        named = (name for track in self.tracks for name, _ in track.models)
        hung = (hang.model for track in self.tracks for hang in track.records.hangs)
        return list(dict.fromkeys((*named, *filter(None, hung))))

    @property
    def unaligned(self) -> list[int]:
        """The ranks whose clock nobody measured: they are placed by their wall clocks."""
        if len(self.tracks) < 2:
            return []
        return [t.rank for t, c in zip(self.tracks, self.clocks, strict=True) if not c.is_known]


def load(
    traces: dict[int, list[Path]],
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Timeline:
    """Read the files of many ranks, in ``processes`` at once: as many as there are cores.

    ``progress`` is told, after each rank, how many bytes of how many have been read.
    """
    files = [traces[rank] for rank in sorted(traces)]
    sizes = [size_of(paths) for paths in files]
    total, done = sum(sizes), 0
    tracks = []
    for track, size in zip(_tracks(files, total, processes), sizes, strict=True):
        tracks.append(track)
        done += size
        if progress is not None:
            progress(done, total)
    return timeline_of(tracks)


def _tracks(files: list[list[Path]], size: int, processes: int | None) -> Iterator[RankTrack]:
    processes = min(processes or len(files), processes_for(size, len(files)))
    if processes < 2:
        yield from map(read_track, files)
        return
    # Imported here: readers that a page waits for have no use for it.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_read_in_own_process, files)


def _read_in_own_process(paths: list[Path]) -> RankTrack:
    """Look for cycles once a rank, and not each time that some hundred lines were decoded."""
    gc.disable()
    track = read_track(paths)
    gc.collect()
    return track


def timeline_of(tracks: Sequence[RankTrack]) -> Timeline:
    """Put the tracks of the newest run side by side; those of others go to ``other_runs``.

    A file that holds nothing, of a process that ended before its first line, is as good as none,
    unless all do, and say what there is in its place.  One that cannot be read, or is of a rank
    that the run does not have, or has in another file, is ``unread``.
    """
    holding = [t for t in tracks if t.records.run is not None or len(t.steps) or len(t.buckets)]
    empty = [t for t in tracks if all(t is not one for one in holding)] if holding else []
    tracks = holding or tracks
    newest = newest_run(t.records.run for t in tracks)
    ours = [t for t in tracks if t.records.run is None or t.records.run.run_id == newest]
    ours.sort(key=lambda t: t.rank)
    runs = [t.records.run for t in ours if t.records.run is not None]
    size = max((run.world_size for run in runs), default=MOST_RANKS)
    kept, surplus = _one_a_rank(ours, size)
    reference = next((run for run in runs if run.rank == 0), None)
    return Timeline(
        tracks=kept,
        clocks=[RankClock(t.records.run, t.records.clocks, reference) for t in kept],
        other_runs=[t for t in tracks if all(t is not one for one in ours)],
        unread=[
            *(_unread(t, t.records.skipped[0].reason) for t in empty if t.records.skipped),
            *surplus,
        ],
    )


def _one_a_rank(tracks: Sequence[RankTrack], size: int) -> tuple[list[RankTrack], list[Unread]]:
    """Return the first track of each rank of a run, and what is wrong with the others."""
    kept: dict[int, RankTrack] = {}
    surplus = []
    for track in tracks:
        if track.rank >= size:
            surplus.append(_unread(track, f"it is of none of the run's {size} ranks; remove it"))
        elif (first := kept.setdefault(track.rank, track)) is not track:
            other = Path(first.paths[0]).name
            surplus.append(_unread(track, f"{other} is of the same rank and run; remove one"))
    return list(kept.values()), surplus


def _unread(track: RankTrack, why: str) -> Unread:
    return Unread(track.rank, Path(track.paths[0]).name, why)


def newest_run(runs: Iterable[RunInfo | None]) -> str | None:
    """Return the id of the run that began last; of those of one moment, what most ranks are of.

    A job that was started again on fewer ranks leaves files of more ranks than it has.
    """
    began: dict[str, int] = {}
    ranks: Counter[str] = Counter()
    for run in runs:
        if run is not None:
            began[run.run_id] = max(began.get(run.run_id, run.wall_anchor_ns), run.wall_anchor_ns)
            ranks[run.run_id] += 1
    return max(began, key=lambda run_id: (began[run_id], ranks[run_id]), default=None)
