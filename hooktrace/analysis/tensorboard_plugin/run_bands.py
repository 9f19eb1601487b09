"""The whole run in bands: of each stretch of steps, how its times lie over all ranks and steps.

    Timeline, Scene --run_bands--> exposed time and period, each in bins of 5 %, median, 95 %, most

A line of the largest values says nothing of the others: one slow rank and a run that is slow
everywhere look alike.  Only steps that enter statistics are in the bands.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..timeline import UNKNOWN, Ints, Timeline
from .heat_map import cells_of, counted_steps
from .scene import Scene

MAX_BINS = 300
"""Stretches of steps; a run with fewer steps has one a step."""
_SHARES = (0.05, 0.5, 0.95)
_NEVER = np.iinfo(np.int64).max


def run_bands(timeline: Timeline, scene: Scene) -> dict[str, Any]:
    """Return ``exposed`` and ``period``: lists with an entry a bin, in ns since the origin and ns.

    ``start``, ``end``: where the bin's steps lie; ``first``, ``last``: the steps.  ``most`` is at
    step ``most_step`` on rank ``most_rank``.  Bins in which nothing is known are left out.
    """
    return {value: _bands(timeline, scene, value) for value in ("exposed", "period")}


def _bands(timeline: Timeline, scene: Scene, value: str) -> dict[str, list[int]]:
    steps, cells = cells_of(timeline, scene, value)
    counted = counted_steps(scene, steps)
    size = max(1, -(-len(counted) // MAX_BINS))
    firsts = np.arange(0, len(counted), size)
    begun, ended = _moments(scene, steps)
    rows = []
    for at in firsts.tolist():
        own = counted[at : at + size]
        if found := _lying(scene, steps[own], cells[:, own]):
            rows.append((int(begun[own].min()), int(ended[own].max()), *found))
    names = ("start", "end", "first", "last", "p5", "p50", "p95", "most", "most_rank", "most_step")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _lying(scene: Scene, steps: Ints, values: Ints) -> tuple[int, ...] | None:
    """Return how the values (ranks, steps) of a bin lie; ``None`` where none is known."""
    known: npt.NDArray[Any] = values[values != UNKNOWN]
    if not len(known):
        return None
    rank, step = np.unravel_index(int(values.argmax()), values.shape)
    low, middle, high = np.rint(np.quantile(known, _SHARES)).astype(int).tolist()
    most = int(values.max()), scene.ranks[int(rank)].rank, int(steps[int(step)])
    return int(steps[0]), int(steps[-1]), low, middle, high, *most


def _moments(scene: Scene, steps: Ints) -> tuple[Ints, Ints]:
    """Return when each step began on any rank, and ended on all."""
    begun, ended = np.full(len(steps), _NEVER), np.zeros(len(steps), np.int64)
    for rank in scene.ranks:
        at = np.searchsorted(steps, rank.number)
        np.minimum.at(begun, at, rank.steps.start)
        np.maximum.at(ended, at, rank.steps.end)
    return begun, ended
