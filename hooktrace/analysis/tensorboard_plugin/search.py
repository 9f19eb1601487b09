"""What a text in the tab's search box finds: steps, buckets, units, ranks, parameters, anomalies.

    Scene, text --search--> results that the page lists and jumps to, at most MAX_RESULTS

``12`` is a step, a bucket and a rank; ``step 12``, ``bucket 3`` or ``b3``, and ``rank 2`` are one
of them.  Any text of two letters or more is looked for in parameters' names, and in anomalies'
kinds and sentences, in upper or lower case.  DDP makes new buckets in a run: a parameter is in a
bucket from its layout's step to the next layout.  Of a sharded run units are found by their names,
and there are no buckets; all collectives of a unit are lit together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np

from ...records import LayoutRecord
from .run_summary import layouts_of, wrong_of
from .scene import Scene

MAX_RESULTS = 40
_MAX_TEXT = 200
_SHORTEST = 2
_NUMBER = re.compile(r"(step|s|bucket|b|rank|r|)\s*(\d{1,15})")

Result = dict[str, Any]


def search(scene: Scene, text: str) -> dict[str, Any]:
    """Return ``results``, the nearest first, and whether there are ``more``.

    Each has ``kind``, ``title`` and ``note``, and of ``step``, ``rank``, ``at`` (ns since the
    origin), ``bucket`` and ``unit`` what is known; a bucket or unit is that of the steps ``first``
    to ``last``, which is ``None`` where no later layout is known.
    """
    wanted = " ".join(text[:_MAX_TEXT].lower().split())
    found = list(islice(_results(scene, wanted), MAX_RESULTS + 1))
    return {"results": found[:MAX_RESULTS], "more": len(found) > MAX_RESULTS}


def _results(scene: Scene, wanted: str) -> Iterator[Result]:
    number = _NUMBER.fullmatch(wanted)
    if number:
        what, value = number.group(1)[:1], int(number.group(2))
        for letter, find in (("s", _step), ("b", _bucket), ("r", _rank)):
            if what in ("", letter):
                yield from find(scene, value)
    if len(wanted) >= _SHORTEST and not wanted.isdigit():
        yield from _units(scene, wanted) if scene.is_sharded else _parameters(scene, wanted)
        yield from _wrong(scene, wanted)


def _step(scene: Scene, step: int) -> Iterator[Result]:
    ranks = np.unique(scene.steps.rank[scene.steps.number == step])
    if len(ranks):
        of = "all ranks" if len(ranks) == len(scene.numbers) else f"{len(ranks)} of the ranks"
        yield {"kind": "step", "title": f"step {step}", "note": of, "step": step}


def _bucket(scene: Scene, bucket: int) -> Iterator[Result]:
    steps = scene.bars.step[scene.bars.bucket == bucket]
    if len(steps) and not scene.is_sharded:
        first, last = int(steps.min()), int(steps.max())
        yield {
            "kind": "bucket", "title": f"bucket {bucket}", "note": f"steps {first} to {last}",
            "bucket": bucket, "first": first, "last": None,
        }  # fmt: skip


def _rank(scene: Scene, rank: int) -> Iterator[Result]:
    for track in scene.tracks:
        if track.rank == rank:
            run = track.records.run
            host = run.host if run is not None else "host unknown"
            yield {"kind": "rank", "title": f"rank {rank}", "note": host, "rank": rank}


def _parameters(scene: Scene, wanted: str) -> Iterator[Result]:
    """Give the newest buckets first: they are what most steps have."""
    for layout, last in reversed(_layouts(scene)):
        for bucket in layout.buckets:
            for one in bucket.parameters:
                if wanted in one.name.lower():
                    until = f"to step {last}" if last is not None else "on"
                    size = " by ".join(map(str, one.shape)) or "scalar"
                    yield {
                        "kind": "parameter", "title": one.name, "bucket": bucket.bucket,
                        "note": f"bucket {bucket.bucket} from step {layout.step} {until}; {size}",
                        "first": layout.step, "last": last,
                    }  # fmt: skip


def _units(scene: Scene, wanted: str) -> Iterator[Result]:
    """Give units by their names, then those that have a parameter of such a name."""
    first = next(iter(scene.step_numbers.tolist()), 0)
    parameters: dict[tuple[str, str], str] = {}
    for entry in (entry for *_, layout in scene.layouts for entry in layout.buckets):
        unit = entry.unit.name if entry.unit is not None else ""
        for one in entry.parameters:
            parameters[one.name, unit] = " by ".join(map(str, one.shape)) or "scalar"
    units = dict.fromkeys(unit.name for unit in scene.units)
    for name in units:
        if wanted in name.lower():
            count = sum(own == name for _, own in parameters)
            note = f"unit of {count} parameter{'' if count == 1 else 's'}"
            yield {"kind": "unit", "title": name, "unit": name, "note": note,
                   "first": first, "last": None}  # fmt: skip
    for (name, unit), size in parameters.items():
        if wanted in name.lower():
            yield {"kind": "parameter", "title": name, "unit": unit, "note": f"unit {unit}; {size}",
                   "first": first, "last": None}  # fmt: skip


def _layouts(scene: Scene) -> list[tuple[LayoutRecord, int | None]]:
    """Return each layout with the last step that has it; of the first rank that has any."""
    records = [record for _, record in layouts_of(scene)]
    ends = [max(a.step, b.step - 1) for a, b in pairwise(records)]
    return list(zip(records, [*ends, None], strict=bool(records)))


def _wrong(scene: Scene, wanted: str) -> Iterator[Result]:
    for one in wrong_of(scene):
        kind, _, _ = one["label"].partition(",")
        if wanted.replace("_", " ") in kind or wanted in one["text"].lower():
            where = {name: one[name] for name in ("step", "rank", "at")}
            yield {"kind": "anomaly", "title": one["label"], "note": one["text"], **where}
