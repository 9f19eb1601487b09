"""The lists beside the lanes: slow steps, late ranks, what went wrong; and where a step is.

Scene --lists_of--> rows of each list, from which a click jumps
Scene, step --step_of--> when it was, and how long it took
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...records import LayoutRecord
from ...records.units import named_ranks, percent
from ..run import Ints
from ..run.columns import KEY_BITS
from ..run.dense import settled_steps
from ..run.late import LateRank
from .runs import NotThereError
from .scene import Scene
from .units import call_name
from .words import counted, time_text

MAX_LISTED = 30
"""Rows in a list, ..."""
_MOST_STEPS = 12
"""... and in one of steps."""

Row = dict[str, Any]
"""``label``, ``value``, ``text`` (a tooltip), and ``step``, ``rank``, ``at`` (ns since the origin)
as far as a click needs them; or a ``note`` alone."""


def lists_of(scene: Scene) -> dict[str, list[Row]]:
    """Return the rows of each list."""
    steps, wrong = merged_steps(scene), [*wrong_of(scene)]
    more = len(wrong) - MAX_LISTED
    return {
        "slowest": _largest(steps, "period"),
        "exposed": _largest(steps, "exposed"),
        "late": [
            *(_late(scene, *one) for one in scene.late[:MAX_LISTED]),
            *([{"note": scene.late_note}] if scene.late_note else []),
        ],
        "anomalies": [
            *wrong[:MAX_LISTED],
            *([{"note": f"and {more:,} more"}] if more > 0 else []),
        ],
        "rebuilds": [*_rebuilds(scene)][-MAX_LISTED:],
    }


def usual_exposed(scene: Scene) -> list[list[int]]:
    """Return the median exposed time of each rank's steps that count, in ns; -1 without any."""
    known = ((r.rank, r.exposed[r.counts & (r.exposed >= 0)]) for r in scene.ranks)
    return [[rank, int(np.median(own)) if len(own) else -1] for rank, own in known]


def step_of(scene: Scene, step: int | None) -> dict[str, int]:
    """Return where a step is, or the nearest one, and its largest period and exposed time.

    Those are -1 where they are not known.  ``None``: the report's typical step.  Raises
    ``NotThereError`` where there are no steps, or none that is typical.
    """
    steps = merged_steps(scene)
    if not len(steps["step"]):
        raise NotThereError("there are no steps yet")
    if step is None:
        arrays = settled_steps(scene.run, scene.model)
        if arrays is None or arrays.typical is None:
            raise NotThereError("no step counts yet")
        step = arrays.typical
    at = int(np.abs(steps["step"] - step).argmin())
    return {name: int(steps[name][at]) for name in ("step", "start", "end", "period", "exposed")}


def merged_steps(scene: Scene) -> dict[str, Ints]:
    """Return steps over all ranks: from the first start to the last end, the largest durations.

    ``rank``: which has the most exposed.
    """
    every, least = scene.step_numbers, np.iinfo(np.int64).min
    found = {
        "step": every,
        "start": np.full(len(every), np.iinfo(np.int64).max),
        "end": np.full(len(every), least),
        **{name: np.full(len(every), -1) for name in ("period", "exposed", "rank")},
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


def _largest(steps: dict[str, Ints], by: str) -> list[Row]:
    order = np.argsort(-steps[by], kind="stable")[:_MOST_STEPS]
    rows = ({name: int(values[at]) for name, values in steps.items()} for at in order)
    return [
        {
            "label": f"step {one['step']}",
            "value": time_text(one[by]),
            "text": f"rank {one['rank']} has the most exposed: {time_text(one['exposed'])}"
            if one["exposed"] >= 0
            else "",
            "step": one["step"],
        }
        for one in rows
        if one[by] >= 0
    ]


def _late(scene: Scene, late: LateRank, calls: Ints) -> Row:
    """Return where a rank is late, how often, and by how much, as the report has it."""
    own = next(r for r in scene.ranks if r.rank == late.rank)
    at = np.flatnonzero(own.bucket == late.bucket)
    name = call_name(own.track, int(own.buckets.row[at[-1]]))
    return {
        "label": f"rank {late.rank}: last in {percent(late.share)} of the steps",
        "value": time_text(round(late.margin_ns)),
        "text": f"others wait for it at {name}, so long a step in the mean",
        "step": int(calls[0] >> KEY_BITS),
        "rank": late.rank,
    }


def wrong_of(scene: Scene) -> Iterator[Row]:
    """Yield the hangs, and the anomalies by when they were, but for stalls of hung steps."""
    for at, hang in scene.hangs:
        ranks, step = hang.record.ranks, hang.record.step
        label = f"hang, step {step}" + (f", for {named_ranks(ranks)}" if ranks else "")
        text = f"{hang.record.sentence}; {hang.outcome}"
        yield _leading(label, text, step=step, rank=next(iter(ranks), None), at=at)
    hung = {hang.record.step for _, hang in scene.hangs}
    anomalies = [(at, r.rank, a) for r in scene.ranks for at, a in r.anomalies]
    for at, rank, a in sorted(anomalies, key=lambda one: one[0]):
        if a.kind != "stall" or a.step not in hung:
            label = f"{a.kind.replace('_', ' ')}, step {a.step}, rank {rank}"
            yield _leading(label, a.message, step=a.step, rank=rank, at=at)


def _leading(label: str, text: str, **where: int | None) -> Row:
    return {"label": label, "value": "", "text": text, **where}


def _rebuilds(scene: Scene) -> Iterator[Row]:
    """Yield the layouts of the first rank that has any: the others do the same."""
    noun = "collective" if scene.is_sharded else "bucket"
    for at, layout in next((r.layouts for r in scene.ranks if r.layouts), []):
        yield {
            "label": f"generation {layout.generation}",
            "value": f"{counted(len(layout.buckets), noun)}, step {layout.step}",
            "text": layout_text(layout),
            "step": layout.step,
            "at": at,
        }


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
