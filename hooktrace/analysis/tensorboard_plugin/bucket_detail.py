"""All numbers of one bucket, as a tooltip shows them; texts are plain, escaping is the browser's.

Scene, rank, id --bucket_detail--> sections of (label, value) in the order of reading
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...records import ErrorRecord, LayoutRecord
from ...records.units import exact_ms, size
from ..timeline import FLAGS, STAGE_NAMES, UNKNOWN
from .runs import NotThereError
from .scene import RankScene, Scene

MAX_NAMES = 40
"""Parameter names in a detail; the number of the others is told."""


def bucket_detail(scene: Scene, rank: int, row: int) -> dict[str, Any]:
    """Return everything that is known of the bucket in ``row`` of a rank's file.

    Raises ``NotThereError`` where there is no such rank or row.
    """
    own = next((r for r in scene.ranks if r.rank == rank), None)
    if own is None:
        raise NotThereError(f"there is no rank {rank}")
    places = np.flatnonzero(own.row == row)
    if not len(places):
        raise NotThereError(f"rank {rank} has no bucket {row}")
    at = int(places[0])
    columns, track = own.track.buckets, own.track
    model, hook = track.models[int(columns.model[row])]
    facts = track.facts[int(columns.facts[row])]
    flags = [name for name, bit in FLAGS.items() if columns.flags[row] & bit]
    layout = next((x for _, x in own.layouts if x.generation == columns.generation[row]), None)
    names = _parameters(layout, int(columns.bucket[row]))
    error = track.errors.get(row)
    return {
        "title": f"bucket {columns.bucket[row]}, step {columns.step[row]}, rank {rank}",
        "start": int(own.start[at]),
        "end": int(own.end[at]),
        "what": [
            ["model", model],
            ["hook", hook],
            ["generation", str(columns.generation[row])],
            ["elements", f"{facts.numel:,} {facts.dtype}"],
            *([["marks", ", ".join(flags).replace("_", " ")]] if flags else []),
        ],
        "times": _times(own, at, row),
        "stages": _stages(own, row),
        "bytes": _bytes(own, row),
        "late": _lateness(scene, own, at),
        "error": [] if error is None else _error(error),
        "worst": [] if error is None else [
            [w.name, _number(w.relative_l2)] for w in error.worst
        ],
        "exception": track.exceptions.get(row),
        "parameters": names[:MAX_NAMES],
        "more_parameters": max(0, len(names) - MAX_NAMES),
    }  # fmt: skip


def _times(own: RankScene, at: int, row: int) -> list[list[str]]:
    columns = own.track.buckets
    return [
        ["ready to done", exact_ms(int(own.end[at] - own.start[at]))],
        ["hook's call", exact_ms(int(columns.launched_after[row]))],
        ["ready at", f"{own.start[at] / 1e9:,.6f} s"],
    ]


def _stages(own: RankScene, row: int) -> list[list[Any]]:
    columns, stages = own.track.buckets, own.track.stages
    first = int(columns.first_stage[row])
    return [
        [
            int(stages.name[i]),
            STAGE_NAMES[int(stages.name[i])],
            exact_ms(int(stages.end[i] - stages.start[i])),
            "derived" if stages.derived[i] else "",
        ]
        for i in range(first, first + int(columns.stages[row]))
    ]


def _bytes(own: RankScene, row: int) -> list[list[str]]:
    columns, stages = own.track.buckets, own.track.stages
    gradient, wire = int(columns.gradient_bytes[row]), int(columns.wire_bytes[row])
    found = [["gradients", size(gradient)]]
    if wire == UNKNOWN:
        return [*found, ["on the wire", "unknown"]]
    ratio = f" ({gradient / wire:.3g} times less)" if wire and wire != gradient else ""
    found.append(["on the wire", size(wire) + ratio])
    first = int(columns.first_stage[row])
    own_stages = slice(first, first + int(columns.stages[row]))
    on_wire = stages.name[own_stages] == STAGE_NAMES.index("wire")
    wire_ns = int((stages.end - stages.start)[own_stages][on_wire].sum())
    if columns.bus_bytes[row] != UNKNOWN and wire_ns:
        found.append(["bus bandwidth", f"{columns.bus_bytes[row] / wire_ns:.3g} GB/s"])
    return found


def _lateness(scene: Scene, own: RankScene, at: int) -> list[list[str]]:
    """Return how this bucket's arrival stands to the other ranks', and how well that is known."""
    arrivals = scene.arrivals
    if len(arrivals.ranks) < 2:
        return []
    found = np.flatnonzero((arrivals.step == own.step[at]) & (arrivals.bucket == own.bucket[at]))
    index = arrivals.ranks.index(own.rank)
    if not len(found):
        return []
    key = int(found[0])
    ready = arrivals.ready[:, key]
    lag = int(ready[index] - ready[ready != UNKNOWN].min())
    uncertainty = int(arrivals.uncertainty[index, key])
    known = "by wall clock" if uncertainty == UNKNOWN else f"± {exact_ms(uncertainty)}"
    rows = [["after the first rank", f"{exact_ms(lag)} ({known})"]]
    late = int(scene.late[key])
    if late != UNKNOWN:
        rows.append(
            ["last of all", f"rank {arrivals.ranks[late]}, by {exact_ms(int(scene.margin[key]))}"]
        )
    return rows


def _error(error: ErrorRecord) -> list[list[str]]:
    against = "the rank's own gradients" if error.scope == "local" else "the lossless average"
    return [
        ["relative L2", _number(error.relative_l2)],
        ["cosine", _number(error.cosine)],
        ["largest absolute", _number(error.max_absolute)],
        ["flipped signs", _number(error.flipped_share)],
        ["norm of the reference", _number(error.reference_l2)],
        *([["error feedback keeps", _number(error.residual_l2)]] if error.residual_l2 else []),
        ["against", against],
    ]


def _parameters(layout: LayoutRecord | None, bucket: int) -> list[str]:
    if layout is None:
        return []
    return [
        f"{name} ({' by '.join(map(str, shape)) or 'scalar'})"
        for entry in layout.buckets
        if entry.bucket == bucket
        for name, shape in entry.parameters
    ]


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4g}"
