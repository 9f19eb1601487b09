"""What a text in the tab's search box finds: steps, buckets, units, ranks, parameters, anomalies.

    Scene, text --search--> results that the page lists and jumps to, at most MAX_RESULTS

``12`` is a step, a bucket and a rank; ``step 12``, ``bucket 3`` or ``b3``, and ``rank 2`` are one
of them.  Any text of two letters or more is looked for in parameters' names, and in anomalies'
kinds and sentences, in upper or lower case.  Of a sharded run units are found by their names, and
there are no buckets; all collectives of a unit are lit together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from ...records.units import counted
from ..run.scene import Scene
from .bucket_detail import shape_text
from .run_summary import wrong_of

MAX_RESULTS = 40
_MAX_TEXT = 200
_SHORTEST = 2
_NUMBER = re.compile(r"(step|s|bucket|b|rank|r|)\s*(\d{1,15})")

Result = dict[str, Any]


def search(scene: Scene, text: str) -> dict[str, Any]:
    """Return ``results``, the nearest first, and whether there are ``more``.

    Each has ``kind``, ``title`` and ``note``, and of ``step``, ``rank``, ``at`` (ns since the
    origin), ``bucket`` and ``unit`` what is known; a bucket or unit is that of the steps from
    ``first`` on.
    """
    wanted = " ".join(text[:_MAX_TEXT].lower().split())
    found = list(islice(_results(scene, wanted), MAX_RESULTS + 1))
    return {"results": found[:MAX_RESULTS], "more": len(found) > MAX_RESULTS}


def _results(scene: Scene, wanted: str) -> Iterator[Result]:
    if number := _NUMBER.fullmatch(wanted):
        for one in _numbered(scene, int(number[2])):
            if one["kind"].startswith(number[1][:1]):
                yield one
    if len(wanted) >= _SHORTEST and not wanted.isdigit():
        named = _units(scene) if scene.is_sharded else _parameters(scene)
        yield from (one for one in named if wanted in one["title"].lower())
        for row in wrong_of(scene):
            kind, _, _ = row["label"].partition(",")
            if wanted.replace("_", " ") in kind or wanted in row["text"].lower():
                where = {name: row[name] for name in ("step", "rank", "at")}
                yield _result("anomaly", row["label"], row["text"], **where)


def _result(kind: str, title: str, note: str, **where: Any) -> Result:
    return {"kind": kind, "title": title, "note": note, **where}


def _numbered(scene: Scene, number: int) -> Iterator[Result]:
    """Yield the step, the bucket and the rank of a number."""
    ranks = np.unique(scene.steps.rank[scene.steps.number == number])
    if len(ranks):
        yield _result("step", f"step {number}", counted(len(ranks), "rank"), step=number)
    steps = scene.bars.step[scene.bars.bucket == number]
    if len(steps) and not scene.is_sharded:
        where = {"bucket": number, "first": int(steps.min())}
        note = f"steps {steps.min()} to {steps.max()}"
        yield _result("bucket", f"bucket {number}", note, **where)
    for track in scene.tracks:
        if track.rank == number:
            note = track.host or "host unknown"
            yield _result("rank", f"rank {number}", note, rank=number)


def _parameters(scene: Scene) -> Iterator[Result]:
    """Yield those of the newest buckets, which most steps have; all ranks have the same."""
    of_ranks = (track.records.assignments for track in scene.tracks)
    own = ([one for one in records if one.model == scene.model] for records in of_ranks)
    for layout in next(filter(None, own), [])[-1:]:
        for bucket in layout.buckets:
            where = {"bucket": bucket.bucket, "first": layout.step}
            for one in bucket.parameters:
                note = f"bucket {bucket.bucket} from step {layout.step} on; {shape_text(one)}"
                yield _result("parameter", one.name, note, **where)


def _units(scene: Scene) -> Iterator[Result]:
    """Yield units, then their parameters."""
    steps = {"first": next(iter(scene.step_numbers.tolist()), 0)}
    parameters: dict[tuple[str, str], str] = {}
    every = (one for track in scene.tracks for one in track.records.assignments)  # as of pipelines
    for entry in (e for one in every if one.model == scene.model for e in one.buckets):
        unit = entry.unit.name if entry.unit is not None else ""
        for one in entry.parameters:
            parameters[one.name, unit] = shape_text(one)
    for name in dict.fromkeys(unit.name for unit in scene.units):
        count = sum(own == name for _, own in parameters)
        yield _result("unit", name, f"unit of {counted(count, 'parameter')}", unit=name, **steps)
    for (name, unit), size in parameters.items():
        yield _result("parameter", name, f"unit {unit}; {size}", unit=unit, **steps)
