"""All numbers of one bucket, as a tooltip shows them; texts are plain, escaping is the browser's.

Scene, rank, id --bucket_detail--> sections of (label, value) in the order of reading
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan
from typing import Any

import numpy as np

from ...records import ErrorRecord, Unit
from ...records.units import exact_ms, ms, named_ranks, percent, size
from ..run import FLAGS, STAGE_NAMES, UNKNOWN, Ints, RankTrack, Waits
from ..run.bucket_table import SHOWN
from ..run.tables import BucketRows
from ..run.waits import ONE_RANK
from .runs import NotThereError
from .scene import KINDS, RankScene, Scene
from .units import EXPOSED_UNKNOWN, call_name, kind_words, unit_of

MAX_NAMES = 40
"""Parameter names in a detail; the number of the others is told."""


def bucket_detail(scene: Scene, rank: int, row: int) -> dict[str, Any]:
    """Return everything that is known of the bucket in ``row`` of a rank's file.

    Raises ``NotThereError`` where there is no such rank or row.
    """
    own = next((r for r in scene.ranks if r.rank == rank), None)
    if own is None:
        raise NotThereError(f"there is no rank {rank}")
    places = np.flatnonzero(own.buckets.row == row)
    if not len(places):
        raise NotThereError(f"rank {rank} has no bucket {row}")
    at = int(places[0])
    columns, track = own.track.buckets, own.track
    facts = track.facts[int(columns.facts[row])]
    unit = unit_of(track, row)
    hidden = () if unit is None else ("sharded", "is_last")  # all of them, and none of them
    flags = [n for n, bit in FLAGS.items() if columns.flags[row] & bit and n not in hidden]
    error = track.errors.get(row)
    names = _parameters(own, scene.model, row)
    others = _others(scene, own, row)
    times, sizes = ([r for n, r in others if n.endswith(unit)] for unit in ("_ns", "_bytes"))
    return {
        "id": row,
        "call": call_name(track, row),
        "title": f"{call_name(track, row)}, step {columns.step[row]}, rank {rank}",
        "start": int(own.buckets.start[at]),
        "end": int(own.buckets.end[at]),
        "what": [
            ["model", scene.model],
            ["hook", facts.hook],
            *([] if unit is None else [["unit", unit.name], ["kind", kind_words(unit)]]),
            ["generation", str(columns.generation[row])],
            ["elements", f"{facts.numel:,} {facts.dtype}"],
            *([["marks", ", ".join(map(_mark, flags))]] if flags else []),
            *(r for _, r in others if r not in times and r not in sizes),
        ],
        "times": _times(own, at, row) + times,
        "stages": _stage_rows(own, row),
        "spoken": spoken(
            scene, own, at, [(STAGE_NAMES[n], ns) for n, ns, _ in _stages(track, row)],
            _wires(track, row),
        ),
        "waiting": wait_sentence(scene, own, _wires(track, row)),
        "bytes": _bytes(own, row) + sizes,
        "late": _lateness(scene, own, at),
        "error": [] if error is None else _error(error, unit),
        "worst": [] if error is None else [
            [w.name, _number(w.relative_l2)] for w in error.worst
        ],
        "exception": track.exceptions.get(row),
        "parameters": names[:MAX_NAMES],
        "more_parameters": max(0, len(names) - MAX_NAMES),
    }  # fmt: skip


_OWN_WORDS = (
    "gradient_bytes",
    "wire_bytes",
    "duration_ns",
    "wait_ns",
    "exposed_ns",
    "error_relative_l2",
)
"""Columns of ``run/bucket_table.py`` for which a detail has words of its own."""


def _others(scene: Scene, own: RankScene, row: int) -> list[tuple[str, list[str]]]:
    """Return the other columns that it shows: name, then heading and text."""
    tracks = scene.run.tracks
    rows = BucketRows(scene.run, next(i for i, x in enumerate(tracks) if x is own.track))
    found = []
    for column, how in SHOWN:
        if how.heading and column.name not in _OWN_WORDS:
            value = float(column.of(rows).floats[row])
            found.append((column.name, [how.heading, _text(column.name, value)]))
    return found


def _text(name: str, value: float) -> str:
    """Return a value as text, by the unit in its column's name."""
    if isnan(value):
        return "not known"
    for unit, text in (("_ns", exact_ms), ("_bytes", size)):
        if name.endswith(unit):
            return text(int(value))
    return percent(value) if name.endswith("_share") else _number(value)


def _mark(flag: str) -> str:
    return "times of the device" if flag == "device" else flag.replace("_", " ")


def row_of(scene: Scene, rank: int, step: int, bucket: int) -> int:
    """Return the row of a bucket in its rank's file; raises ``NotThereError`` where it has none."""
    for own in scene.ranks:
        places = np.flatnonzero((own.step == step) & (own.bucket == bucket))
        if own.rank == rank and len(places):
            return int(own.buckets.row[places[0]])
    raise NotThereError(f"rank {rank} has no bucket {bucket} in step {step}")


def _times(own: RankScene, at: int, row: int) -> list[list[str]]:
    start, end = int(own.buckets.start[at]), int(own.buckets.end[at])
    columns = own.track.buckets
    if columns.having("sharded")[row]:
        exposed = int(columns.exposed[row])
        return [
            ["begun to done", exact_ms(end - start)],
            ["exposed", EXPOSED_UNKNOWN if exposed == UNKNOWN else exact_ms(exposed)],
            ["begun at", f"{start / 1e9:,.6f} s"],
        ]
    return [
        ["ready to done", exact_ms(end - start)],
        ["hook's call", exact_ms(int(columns.launched_after[row]))],
        ["ready at", f"{start / 1e9:,.6f} s"],
    ]


def _stages(track: RankTrack, row: int) -> list[tuple[int, int, bool]]:
    """Return name, duration in ns and whether it is derived of each stage."""
    stages, (rows, _) = track.stages, track.stages_of(np.array([row]))
    names, spent = stages.name[rows], stages.end[rows] - stages.start[rows]
    return list(zip(names.tolist(), spent.tolist(), stages.derived[rows].tolist(), strict=True))


def _wires(track: RankTrack, row: int) -> Ints:
    """Return the rows of a bucket's wire stages."""
    rows = track.stages_of(np.array([row]))[0]
    found: Ints = rows[track.stages.name[rows] == STAGE_NAMES.index("wire")]
    return found


def _stage_rows(own: RankScene, row: int) -> list[list[int | str]]:
    """Return kind, name, duration and a note of each stage; a wire that waited is two rows."""
    rows: list[list[int | str]] = []
    waits = iter(own.waited[_wires(own.track, row)].tolist())
    for kind, ns, derived in _stages(own.track, row):
        note = "derived" if derived else ""
        waited = next(waits) if STAGE_NAMES[kind] == "wire" else 0
        if waited > 0:
            rows.append([KINDS.index("wait"), "wire: wait", exact_ms(waited), note])
            rows.append([kind, "wire: transfer", exact_ms(ns - waited), note])
        else:
            rows.append([kind, STAGE_NAMES[kind], exact_ms(ns), note])
    return rows


def _bytes(own: RankScene, row: int) -> list[list[str]]:
    track, columns = own.track, own.track.buckets
    gradient, wire = int(columns.gradient_bytes[row]), int(columns.wire_bytes[row])
    unit = unit_of(track, row)
    gathers = unit is not None and unit.collective == "all_gather"
    found = [["this rank's parameters" if gathers else "gradients", size(gradient)]]
    if wire == UNKNOWN:
        return [*found, ["on the wire", "unknown"]]
    ratio = f" ({gradient / wire:.3g} times less)" if wire and wire != gradient else ""
    found.append(["on the wire", size(wire) + ratio])
    wire_ns = sum(ns for name, ns, _ in _stages(track, row) if STAGE_NAMES[name] == "wire")
    waited = own.waited[_wires(track, row)]
    is_known = bool((waited != UNKNOWN).all())
    took = wire_ns - int(waited.sum()) if is_known else wire_ns
    if columns.bus_bytes[row] > 0 and took > 0:
        what = "bus bandwidth" if is_known else "bus bandwidth, with what it waits"
        found.append([what, f"{columns.bus_bytes[row] / took:.3g} GB/s"])
    return found


def _lateness(scene: Scene, own: RankScene, at: int) -> list[list[str]]:
    """Return how this bucket's arrival stands to the other ranks', and how well that is known."""
    arrivals = scene.arrivals
    found = np.flatnonzero((arrivals.step == own.step[at]) & (arrivals.bucket == own.bucket[at]))
    members = own.track.facts[int(own.track.buckets.facts[own.buckets.row[at]])].members
    within = [i for i, r in enumerate(arrivals.ranks) if members is None or r in range(*members)]
    if len(within) < 2 or not len(found):
        return []
    arrivals = arrivals.among(within, int(found[0]))
    lags, clocks = arrivals.lag()[:, 0], arrivals.uncertainty[:, 0]
    index = arrivals.ranks.index(own.rank)
    first = int(np.where(lags == UNKNOWN, np.iinfo(np.int64).max, lags).argmin())
    off = int(clocks[index] + clocks[first]) if first != index else 0
    known = "by wall clock" if UNKNOWN in clocks[[index, first]] else f"± {exact_ms(off)}"
    rows = [["called after the first rank", f"{exact_ms(int(lags[index]))} ({known})"]]
    last, margin = arrivals.last_at(0)
    if last != UNKNOWN:
        rows.append(["last of all", f"rank {arrivals.ranks[last]}, by {exact_ms(margin)}"])
    return rows


def _error(error: ErrorRecord, unit: Unit | None) -> list[list[str]]:
    against = "the rank's own gradients" if error.scope == "local" else "the lossless average"
    if unit is not None:
        lossless = {"all_gather": "the parameters", "reduce_scatter": "a lossless reduce-scatter"}
        against = lossless.get(unit.collective, "a lossless all-reduce")
    return [
        ["relative L2", _number(error.relative_l2)],
        ["cosine", _number(error.cosine)],
        ["largest absolute", _number(error.max_absolute)],
        ["flipped signs", _number(error.flipped_share)],
        ["norm of the reference", _number(error.reference_l2)],
        *([["error feedback keeps", _number(error.residual_l2)]] if error.residual_l2 else []),
        ["against", against],
    ]


def _parameters(own: RankScene, model: str, row: int) -> list[str]:
    columns = own.track.buckets
    entry = own.track.entries.get((model, int(columns.generation[row]), int(columns.bucket[row])))
    return [
        f"{one.name} ({' by '.join(map(str, one.shape)) or 'scalar'})"
        for one in (entry.parameters if entry is not None else ())
    ]


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4g}"


_MOST_STAGES = 4


def spoken(
    scene: Scene, own: RankScene, at: int, stages: Iterable[tuple[str, int]], wires: Ints
) -> str:
    """Return who, when and how long, then the stages, the longest first.

    ``at``: the bucket's place among the rank's; ``stages``: name and ns of each of its stages;
    ``wires``: those on the wire, rows of the track's stages.
    """
    spent: dict[str, int] = {}
    for name, ns in stages:
        spent[name] = spent.get(name, 0) + ns
    longest = sorted(spent.items(), key=lambda one: -one[1])[:_MOST_STAGES]
    parts = [
        f"{name} {ms(ns)}" + (_of_which(scene, own, wires) if name == "wire" else "")
        for name, ns in longest
        if ns > 0
    ]
    total = int(own.buckets.end[at] - own.buckets.start[at])
    row = int(own.buckets.row[at])
    exposed = int(own.track.buckets.exposed[row])
    if exposed != UNKNOWN:
        parts.insert(0, "all of it exposed" if exposed >= total else f"{ms(exposed)} exposed")
    who = f"rank {own.rank}, step {own.step[at]}, {call_name(own.track, row)}"
    return f"{who}: {', '.join([ms(total), *parts])}"


def _of_which(scene: Scene, own: RankScene, wires: Ints) -> str:
    waited, named = own.waited[wires], own.waited_for[wires]
    if (waited == UNKNOWN).any() or not waited.sum():
        return f" ({wait_sentence(scene, own, wires)})"
    ranks = sorted(set(named[waited > 0].tolist()))
    whom = "" if UNKNOWN in ranks else f" for {named_ranks(ranks)}"
    return f", of which {ms(int(waited.sum()))} waiting{whom}"


NO_COUNTERPART = "its collective was not found on all ranks"


def wait_sentence(scene: Scene, own: RankScene, wires: Ints) -> str | None:
    """Return what the collectives in some rows of the rank's stages waited; ``None`` of none."""
    if not len(wires):
        return None
    waited = own.waited[wires]
    if (waited == UNKNOWN).any():
        if scene.waits.why_unknown == ONE_RANK:
            return ONE_RANK
        why = scene.waits.why_unknown or NO_COUNTERPART
        return f"how much of it is waiting is not known, because {why}"
    named = own.waited_for[wires]
    if not waited.sum():
        return _of_no_wait(own.rank, named.tolist())
    ranks = sorted(set(named[waited > 0].tolist()))
    told = f"waits {ms(int(waited.sum()))}"
    if UNKNOWN not in ranks:
        return f"{told} for {named_ranks(ranks)}"
    return f"{told}; {why_unnamed(scene.waits)}"


def why_unnamed(found: Waits) -> str:
    """Return why nobody is named for whom is waited."""
    if found.why_no_clock is not None:
        return f"for which rank is not known, because {found.why_no_clock}"
    return "which rank is last is not told apart by the clocks"


def _of_no_wait(rank: int, named: list[int]) -> str:
    if set(named) == {rank}:
        return "waits for nobody: it is the last rank"
    return "waits for nobody, as far as is known"
