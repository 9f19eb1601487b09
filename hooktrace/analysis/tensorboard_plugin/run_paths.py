"""Critical paths and waiting as the page draws and lists them; times in ns since the origin.

Scene --step_path--> segments of one step, with the row that each is drawn in
--usual_path--> what a usual step consists of, and who is waited for
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...records.units import named_ranks, percent
from ..run import UNKNOWN, CriticalPaths, critical_path_sums, models_beside
from ..run.path_sums import PathPart, parts, sums_of
from ..run.run import once
from .scene import KINDS, Scene
from .words import time_text

_MOST_ROWS = 8
_LEAST_PART = 0.01


_paths = once(CriticalPaths)
_sums = once(critical_path_sums)


def step_path(scene: Scene, step: int) -> dict[str, Any]:
    """Return the path of a step: segments, and its parts, the largest first."""
    paths = _paths(scene.run, scene.model)
    found, origin = paths.of(step), scene.origin
    if found.why_unknown is not None:
        title = f"Step {step} has none: {found.why_unknown}."
        return {"title": title, "rows": [], "segments": []}
    length, beside = found.end - found.start, models_beside(scene.run, scene.model)
    return {
        "title": f"Step {step} took {time_text(length)}:",
        "rows": _rows(parts(sums_of(found.segments), beside), length),
        "segments": [
            {
                "kind": one.kind,
                "rank": one.rank,
                "lane": scene.numbers[one.lane],
                "row": scene.lane_of(one.lane, step, one.bucket),
                "bucket": one.bucket,
                "start": one.start - origin,
                "end": one.end - origin,
            }
            for one in found.segments
        ],
    }


def usual_path(scene: Scene) -> dict[str, Any]:
    """Return what a usual step's path consists of, of a sample of steps; and the waiting."""
    found, said = _sums(scene.run, scene.model), {"waiting": waiting(scene)}
    if found.why_unknown is not None:
        return {**said, "title": f"There is none: {found.why_unknown}.", "rows": []}
    length, some = found.length_ns // found.steps, f"all {found.of} steady-state steps"
    if found.steps < found.of:
        some = f"{found.steps} of the {found.of} steady-state steps, chosen by chance"
    title = f"On average {time_text(length)} a step, of {some}:"
    every = parts(found.ns, found.beside)
    return {**said, "title": title, "rows": _rows(every, length, found.steps)}


def _rows(every: Sequence[PathPart], length: int, steps: int = 1) -> list[tuple[str, str, float]]:
    """Return text, ns with their share, and the share in percent; small parts are one row."""
    told = [(part.text, part.ns // steps) for part in every[:_MOST_ROWS]]
    small = [ns for _, ns in told if ns < _LEAST_PART * length]
    if len(small) > 1:
        told = [one for one in told if one[1] >= _LEAST_PART * length]
        told += [(f"{len(small)} parts below 1 % each", sum(small))]
    shares = [(text, ns, 100 * ns / max(1, length)) for text, ns in told]
    return [
        (text, f"{time_text(ns)}, {'< 1' if share < 1 else round(share)} %", share)
        for text, ns, share in shares
    ]


def waiting(scene: Scene) -> list[list[str]]:
    """Return what share of all wire time is waiting, and for whom; why, where it is not known.

    Shares, since buckets overlap and all ranks wait at once: the sum is nobody's time.
    """
    if scene.waits.why_missing is not None:
        return [["not known", scene.waits.why_missing]]
    wait, wire = (float(scene.spent[:, KINDS.index(kind)].sum()) for kind in ("wait", "wire"))
    wire = wait + wire or 1.0
    ranks, ns = np.array([UNKNOWN, *scene.numbers]), np.zeros(1 + len(scene.numbers))
    for waited in scene.waits.waited:
        at = waited.ns > 0
        ns += np.bincount(waited.last[at] + 1, weights=waited.ns[at], minlength=len(ns))
    order = [i for i in np.argsort(-ns, kind="stable").tolist() if ns[i] > 0]
    named, others = order[:_MOST_ROWS], order[_MOST_ROWS:]
    rows = [(_whom(int(ranks[i])), float(ns[i])) for i in named]
    if others:
        rows.append((named_ranks(ranks[others].tolist()), float(ns[others].sum())))
    shares = [[f"for {whom}", percent(of / wire)] for whom, of in rows]
    return [["of all wire time", percent(wait / wire)], *shares]


def _whom(rank: int) -> str:
    return "a rank that the clocks do not show" if rank == UNKNOWN else f"rank {rank}"
