"""Ranks side by side, each with its clock.

tracks of ranks --run_of--> Run
what several views ask of a run --once--> worked out once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from ...records import RunInfo
from ...records.base import MOST_RANKS
from .clock import RankClock
from .columns import RankTrack


class Unread(NamedTuple):
    """A rank's first file, and why nothing of it is there."""

    rank: int
    file: str
    why: str


@dataclass(eq=False)
class Run:
    """The ranks of one run, in ascending order, each with its clock.

    ``other_runs``: tracks of earlier runs, which are not among ``tracks``.  ``unread``: files of
    which nothing is, each with the reason.  ``every``: as ``load`` was asked.
    """

    tracks: list[RankTrack]
    clocks: list[RankClock]
    other_runs: list[RankTrack]
    unread: list[Unread] = field(default_factory=list)
    every: int = 1
    _known: dict[object, Any] = field(default_factory=dict, repr=False)

    @property
    def infos(self) -> list[RunInfo]:
        """What the ranks say of the run, those that tell."""
        return [t.records.run for t in self.tracks if t.records.run is not None]

    @property
    def info(self) -> RunInfo | None:
        """What the lowest rank that tells says of the run."""
        return next(iter(self.infos), None)

    @property
    def hosts(self) -> list[str]:
        """The hosts of the ranks, each once."""
        return [*dict.fromkeys(info.host for info in self.infos)]

    @property
    def world_size(self) -> int | None:
        """How many ranks the job has; ``None`` where no file tells."""
        return None if self.info is None else self.info.world_size

    @property
    def is_whole(self) -> bool:
        """Whether all ranks of the job have a file."""
        return self.world_size == len(self.tracks)

    @property
    def absent(self) -> list[int]:
        """The ranks of the job that have no file here, of this run or another, read or not."""
        there = {one.rank for one in (*self.tracks, *self.other_runs)}
        there |= {one.rank for one in self.unread}
        return sorted(set(range(self.world_size or 0)) - there)

    @property
    def ranks(self) -> list[tuple[RankTrack, RankClock]]:
        """Each rank with its clock."""
        return list(zip(self.tracks, self.clocks, strict=True))

    @property
    def model_names(self) -> list[str]:
        """The names of all models, in order of appearance; also of those that only hung."""
        named = (name for track in self.tracks for name, _ in track.models)
        hung = (hang.model for track in self.tracks for hang in track.records.hangs)
        return list(dict.fromkeys((*named, *filter(None, hung))))

    @property
    def unaligned(self) -> list[int]:
        """The ranks whose clock nobody measured: they are placed by their wall clocks."""
        if len(self.tracks) < 2:
            return []
        return [track.rank for track, clock in self.ranks if not clock.is_known]


_F = TypeVar("_F", bound=Callable[..., Any])


def once(asked: _F) -> _F:
    """Have a function of a run, and of names, answer each question once; nobody changes answers."""

    @wraps(asked)
    def answer(run: Run, /, *names: str) -> Any:
        key = asked, *names
        if key not in run._known:
            run._known[key] = asked(run, *names)
        return run._known[key]

    return cast(_F, answer)


def run_of(tracks: Sequence[RankTrack]) -> Run:
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
    return Run(
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
