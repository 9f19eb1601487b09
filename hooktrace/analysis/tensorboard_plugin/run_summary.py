"""Steps of a scene: the slowest, what went wrong, who was late.

Scene --summary_of--> lists that a click jumps from
Scene, step --step_of--> when it was, and how long it took
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...records import LayoutRecord
from ...records.units import named_ranks
from ..run import Ints
from ..run.dense import settled_steps
from .runs import NotThereError
from .scene import RankScene, Scene
from .units import call_name

MAX_LISTED = 30
"""Rows in each list."""


def summary_of(scene: Scene) -> dict[str, Any]:
    """Return the lists; times in ns since the origin."""
    steps = _merged(scene)
    numbers = steps["step"]
    wrong = wrong_of(scene)
    return {
        "first_step": int(numbers[0]) if len(numbers) else 0,
        "last_step": int(numbers[-1]) if len(numbers) else 0,
        "count": len(steps["step"]),
        "slowest": _largest(steps, "period"),
        "exposed": _largest(steps, "exposed"),
        "anomalies": wrong[:MAX_LISTED],
        "anomaly_count": len(wrong),
        "rebuilds": _rebuilds(scene.ranks),
        "late": _late(scene),
        "usual_exposed": _usual_exposed(scene),
        "late_note": scene.late_note,
    }


def wrong_of(scene: Scene) -> list[dict[str, Any]]:
    """Return the hangs, and the anomalies by when they were."""
    return [*_hangs(scene), *_anomalies(scene)]


def step_of(scene: Scene, step: int | None) -> dict[str, int]:
    """Return where a step is, or the nearest one, and its largest period and exposed time.

    Those are -1 where they are not known.  ``None``: the report's typical step.  Raises
    ``NotThereError`` where there are no steps, or none that is typical.
    """
    steps = _merged(scene)
    if not len(steps["step"]):
        raise NotThereError("there are no steps yet")
    if step is None:
        arrays = settled_steps(scene.run, scene.model)
        if arrays is None or arrays.typical is None:
            raise NotThereError("no step counts yet")
        step = arrays.typical
    at = int(np.abs(steps["step"] - step).argmin())
    return {name: int(steps[name][at]) for name in ("step", "start", "end", "period", "exposed")}


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
        np.maximum.at(found["period"], at[r.counts], columns.period[row][r.counts])
        worse = (r.exposed > found["exposed"][at]) & r.counts
        found["rank"][at[worse]] = r.rank
        np.maximum.at(found["exposed"], at[r.counts], r.exposed[r.counts])
    return found


def _largest(steps: dict[str, Ints], by: str) -> list[dict[str, int]]:
    order = np.argsort(-steps[by], kind="stable")[:MAX_LISTED]
    return [
        {name: int(values[at]) for name, values in steps.items()}
        for at in order
        if steps[by][at] >= 0
    ]


def _usual_exposed(scene: Scene) -> list[list[int]]:
    """Return the median exposed time of each rank's steps that count, in ns; -1 without any."""
    found = []
    for r in scene.ranks:
        own = r.exposed[r.counts & (r.exposed >= 0)]
        found.append([r.rank, int(np.median(own)) if len(own) else -1])
    return found


def _hangs(scene: Scene) -> list[dict[str, Any]]:
    """Return the hangs, which come first in the list of anomalies."""
    return [
        {
            "at": at,
            "who": f"for {named_ranks(hang.record.ranks)}" if hang.record.ranks else "",
            "rank": next(iter(hang.record.ranks), None),
            "kind": "hang",
            "step": hang.record.step,
            "text": f"{hang.record.sentence}; {hang.outcome}",
        }
        for at, hang in scene.hangs
    ]


def _anomalies(scene: Scene) -> list[dict[str, Any]]:
    """Return the anomalies by when they were, but for the stalls of steps in which ranks hung."""
    hung = {hang.record.step for _, hang in scene.hangs}
    found: list[dict[str, Any]] = [
        {
            "at": at,
            "who": f"rank {r.rank}",
            "rank": r.rank,
            "kind": a.kind,
            "step": a.step,
            "text": a.message,
        }
        for r in scene.ranks
        for at, a in r.anomalies
        if a.kind != "stall" or a.step not in hung
    ]
    return sorted(found, key=lambda a: a["at"])


def _rebuilds(ranks: list[RankScene]) -> list[dict[str, Any]]:
    """Return the layouts of the first rank that has any: the others do the same."""
    layouts = next((r.layouts for r in ranks if r.layouts), [])
    return [
        {
            "at": at,
            "generation": x.generation,
            "step": x.step,
            "buckets": len(x.buckets),
            "text": layout_text(x),
        }
        for at, x in layouts[-MAX_LISTED:]
    ]


def layout_text(layout: LayoutRecord) -> str:
    """Return what a layout says, in a sentence."""
    units = {entry.unit.name for entry in layout.buckets if entry.unit is not None}
    if units:
        return (
            f"{len(layout.buckets)} different collectives of {len(units)} units have been met "
            "since the run began"
        )
    parameters = sum(len(entry.parameters) for entry in layout.buckets)
    return f"DDP made {len(layout.buckets)} buckets of {parameters} parameters"


def _late(scene: Scene) -> list[dict[str, Any]]:
    """Return the late ranks, the worst first: where, how often, and by how much at most."""
    ranks = {r.rank: r for r in scene.ranks}
    return [
        {
            "rank": one.rank,
            "times": one.times,
            "of": one.of,
            "margin": one.margin_ns,
            "step": one.step,
            "bucket": one.bucket,
            "name": _name_in(ranks[one.rank], one.bucket),
        }
        for one in scene.late[:MAX_LISTED]
    ]


def _name_in(rank: RankScene, bucket: int) -> str:
    """Return what a rank's bucket is called."""
    at = np.flatnonzero(rank.bucket == bucket)
    return call_name(rank.track, int(rank.buckets.row[at[-1]])) if len(at) else f"bucket {bucket}"
