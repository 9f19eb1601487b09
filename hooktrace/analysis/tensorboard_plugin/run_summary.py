"""Steps of a scene: an overview of the whole run, the slowest, what went wrong, who was late.

Scene --summary_of--> overview (one value a bin), lists that a click jumps from
Scene, step --step_of--> when it was
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ..timeline import Ints
from .runs import NotThereError
from .scene import RankScene, Scene

MAX_LISTED = 30
"""Rows in each list."""
OVERVIEW_BINS = 600


def summary_of(scene: Scene) -> dict[str, Any]:
    """Return the lists and the overview; times in ns since the origin."""
    steps = _merged(scene)
    numbers = steps["step"]
    return {
        "first_step": int(numbers[0]) if len(numbers) else 0,
        "last_step": int(numbers[-1]) if len(numbers) else 0,
        "count": len(steps["step"]),
        "slowest": _largest(steps, "period"),
        "exposed": _largest(steps, "exposed"),
        "overview": _overview(scene, steps),
        "anomalies": _anomalies(scene.ranks),
        "anomaly_count": sum(len(r.anomalies) for r in scene.ranks),
        "rebuilds": _rebuilds(scene.ranks),
        "late": _late(scene),
    }


def step_of(scene: Scene, step: int) -> dict[str, int]:
    """Return where a step is, or the nearest one; raises ``NotThereError`` where there are none."""
    steps = _merged(scene)
    if not len(steps["step"]):
        raise NotThereError("there are no steps yet")
    at = int(np.abs(steps["step"] - step).argmin())
    return {name: int(steps[name][at]) for name in ("step", "start", "end")}


def _merged(scene: Scene) -> dict[str, Ints]:
    """Return steps over all ranks: from the first start to the last end, the largest durations."""
    numbers = [r.number for r in scene.ranks]
    every: Ints = np.unique(np.concatenate(numbers)) if numbers else np.zeros(0, np.int64)
    found = {
        "step": every,
        "start": np.full(len(every), np.iinfo(np.int64).max),
        "end": np.full(len(every), np.iinfo(np.int64).min),
        "period": np.full(len(every), -1),
        "exposed": np.full(len(every), -1),
        "rank": np.full(len(every), -1),
    }
    for r in scene.ranks:
        at, columns, row = np.searchsorted(every, r.number), r.track.steps, r.steps.row
        np.minimum.at(found["start"], at, r.steps.start)
        np.maximum.at(found["end"], at, r.steps.end)
        counts = columns.counts[row]
        np.maximum.at(found["period"], at[counts], columns.period[row][counts])
        worse = (r.exposed > found["exposed"][at]) & counts
        found["rank"][at[worse]] = r.rank
        np.maximum.at(found["exposed"], at[counts], r.exposed[counts])
    return found


def _largest(steps: dict[str, Ints], by: str) -> list[dict[str, int]]:
    order = np.argsort(-steps[by], kind="stable")[:MAX_LISTED]
    return [
        {name: int(values[at]) for name, values in steps.items()}
        for at in order
        if steps[by][at] >= 0
    ]


def _overview(scene: Scene, steps: dict[str, Ints]) -> list[int]:
    """Return the largest exposed time of each bin in ns; -1 where no step that counts begins."""
    bins = np.full(OVERVIEW_BINS, -1)
    if scene.extent > 0:
        place = np.clip(steps["start"] * OVERVIEW_BINS // scene.extent, 0, OVERVIEW_BINS - 1)
        np.maximum.at(bins, place, steps["exposed"])
    found: list[int] = bins.tolist()
    return found


def _anomalies(ranks: list[RankScene]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"at": at, "rank": r.rank, "kind": a.kind, "step": a.step, "text": a.message}
        for r in ranks
        for at, a in r.anomalies
    ]
    return sorted(found, key=lambda a: a["at"])[:MAX_LISTED]


def _rebuilds(ranks: list[RankScene]) -> list[dict[str, Any]]:
    """Return the layouts of the first rank that has any: the others do the same."""
    layouts = next((r.layouts for r in ranks if r.layouts), [])
    return [
        {"at": at, "generation": x.generation, "step": x.step, "buckets": len(x.buckets)}
        for at, x in layouts[-MAX_LISTED:]
    ]


def _late(scene: Scene) -> list[dict[str, Any]]:
    """Return how often each rank was last, and by how much at most, the most often first.

    Only of steps that count on all ranks: probes take each rank as long as they do, and a rank that
    has run out of data is early.
    """
    others = [r.number[~r.track.steps.counts[r.steps.row]] for r in scene.ranks]
    counts = ~np.isin(scene.arrivals.step, np.concatenate([[], *others]))
    late = np.where(counts, scene.late, -1)
    found = []
    for index, times in Counter(int(i) for i in late if i >= 0).most_common(MAX_LISTED):
        own = np.flatnonzero(late == index)
        worst = own[int(scene.margin[own].argmax())]
        found.append(
            {
                "rank": scene.arrivals.ranks[index],
                "times": times,
                "of": int(counts.sum()),
                "margin": int(scene.margin[worst]),
                "step": int(scene.arrivals.step[worst]),
                "bucket": int(scene.arrivals.bucket[worst]),
            }
        )
    return found
