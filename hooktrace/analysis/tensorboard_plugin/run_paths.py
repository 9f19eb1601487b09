"""Critical paths and waiting as the page draws and lists them; times in ns since the origin.

    Scene --RunPaths.step--> segments of one step, with the row that each is drawn in
                    --RunPaths.sums--> what usual steps consist of, and who is waited for

Made when somebody asks, once for a run as far as it was read.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ...records.units import named_ranks, percent
from ..run import UNKNOWN, CriticalPaths, critical_path_sums, models_beside
from ..run.path_sums import parts, sentence, sums_of
from .hang_bars import lane_in
from .scene import KINDS, Scene
from .units import MAX_ROWS

_MOST_ROWS = 8
_WIRE, _WAIT = KINDS.index("wire"), KINDS.index("wait")


class RunPaths:
    """The paths of a scene's model."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @cached_property
    def _paths(self) -> CriticalPaths:
        return CriticalPaths(self._scene.run, self._scene.model)

    @cached_property
    def _beside(self) -> tuple[str, ...]:
        return models_beside(self._scene.run, self._scene.model)

    @cached_property
    def _rows(self) -> list[Any]:
        ranks = self._scene.ranks
        return [lane_in(r.step, r.bucket, r.lane, MAX_ROWS) for r in ranks]

    def step(self, step: int) -> dict[str, Any]:
        """Return the path of a step: segments, and its parts in words, the largest first."""
        found, origin = self._paths.of(step), self._scene.origin
        every = parts(sums_of(found.segments), self._paths.units, self._beside)
        return {
            "step": step,
            "why_unknown": found.why_unknown,
            "start": found.start - origin,
            "end": found.end - origin,
            "segments": [
                {
                    "kind": one.kind,
                    "rank": one.rank,
                    "lane": self._scene.ranks[one.lane].rank,
                    "row": self._rows[one.lane](step, one.bucket),
                    "bucket": one.bucket,
                    "start": one.start - origin,
                    "end": one.end - origin,
                }
                for one in found.segments
            ],
            "parts": [[p.text, p.ns] for p in every[:_MOST_ROWS]],
        }

    @cached_property
    def sums(self) -> dict[str, Any]:
        """What the paths of a sample of settled steps consist of, a usual step; and the waiting."""
        scene = self._scene
        found = critical_path_sums(self._scene.run, scene.model)
        return {
            "steps": found.steps,
            "of": found.of,
            "sentence": sentence(found),
            "why_unknown": found.why_unknown,
            "length": found.length_ns // max(1, found.steps),
            "parts": [
                [p.text, p.ns // found.steps]
                for p in parts(found.ns, found.units, found.beside)[:_MOST_ROWS]
            ],
            "waiting": waiting(scene),
        }


def waiting(scene: Scene) -> list[list[str]]:
    """Return what share of all wire time is waiting, and for whom; why, where it is not known.

    Shares, since buckets overlap and all ranks wait at once: the sum is nobody's time.
    """
    if scene.waits.why_missing is not None:
        return [["not known", scene.waits.why_missing]]
    wait = sum(float(r.spent[:, _WAIT].sum()) for r in scene.ranks)
    wire = wait + sum(float(r.spent[:, _WIRE].sum()) for r in scene.ranks)
    wire = wire or 1.0
    return [["of all wire time", percent(wait / wire)], *_for(scene, wire)]


def _for(scene: Scene, wire: float) -> list[list[str]]:
    """Return for whom the ranks waited, as shares of all wire time."""
    ranks = np.array([UNKNOWN, *(r.rank for r in scene.ranks)])
    ns = np.zeros(len(ranks))
    for r in scene.ranks:
        at = np.flatnonzero(r.waited > 0)
        whom = np.searchsorted(ranks, r.waited_for[at])
        ns += np.bincount(whom, weights=r.waited[at], minlength=len(ranks))
    order = [i for i in np.argsort(-ns, kind="stable").tolist() if ns[i] > 0]
    rows = [[_named(int(ranks[i])), percent(float(ns[i]) / wire)] for i in order[:_MOST_ROWS]]
    left = order[_MOST_ROWS:]
    if left:
        rows.append(
            [f"for {named_ranks(ranks[left].tolist())}", percent(float(ns[left].sum()) / wire)]
        )
    return rows


def _named(rank: int) -> str:
    return "for a rank that is not told apart" if rank == UNKNOWN else f"for rank {rank}"
