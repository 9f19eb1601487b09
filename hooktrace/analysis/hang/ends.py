"""How far each rank came.

Run --rank_ends--> RankEnd of each rank --behind--> who is behind the rank that came furthest
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from ..run import RankTrack, Run


class LastStep(msgspec.Struct, frozen=True):
    """The last whole step of one model; ``wall_ns``: when it was done, since the Unix epoch."""

    model: str
    step: int
    wall_ns: int | None


class RankEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one rank's files.

    ``closed``: whether the writer ended in order; if not, the process was killed, or still runs.
    """

    rank: int
    host: str | None
    last: tuple[LastStep, ...]
    closed: bool


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A model of which ``ranks`` ended after step ``step`` and others after ``furthest``.

    ``step`` is ``None`` of ranks without a whole step of any model.
    """

    model: str
    ranks: tuple[int, ...]
    step: int | None
    furthest: int


def rank_ends(run: Run) -> list[RankEnd]:
    """Return where each rank's files end."""
    return [
        RankEnd(
            rank=track.rank,
            host=None if track.records.run is None else track.records.run.host,
            last=tuple(_last_steps(track)),
            closed=track.records.closed,
        )
        for track in run.tracks
    ]


def _last_steps(track: RankTrack) -> Iterator[LastStep]:
    run, steps = track.records.run, track.steps
    for model in dict.fromkeys(name for name, _ in track.models):
        whole = np.flatnonzero(track.is_of(steps, model) & ~steps.having("incomplete"))
        if len(whole):
            at = whole[steps.step[whole].argmax()]
            wall = None if run is None else run.wall_ns(int(steps.done[at]))
            yield LastStep(model, int(steps.step[at]), wall)


def behind(ends: Sequence[RankEnd]) -> list[Behind]:
    """Return who is behind the rank that came furthest, the furthest behind first."""
    ranks: dict[tuple[str, int | None], tuple[int, ...]] = {}
    furthest: dict[str, int] = {}
    for end in ends:
        for model, step in ((last.model, last.step) for last in end.last):
            ranks[model, step] = (*ranks.get((model, step), ()), end.rank)
            furthest[model] = max(step, furthest.get(model, step))
    nowhere = tuple(end.rank for end in ends if not end.last)
    for model in [*furthest][: 1 if nowhere else 0]:
        ranks[model, None] = nowhere
    return [
        Behind(model=model, ranks=ranks[model, step], step=step, furthest=furthest[model])
        for model, step in sorted(ranks, key=lambda of: -1 if of[1] is None else of[1])
        if step != furthest[model]
    ]
