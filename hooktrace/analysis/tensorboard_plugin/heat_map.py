"""A run as ranks by steps: of each cell one time, to find the rank and the step that stand out.

    Scene, value --heat_map--> rows (ranks), columns (steps, or bins of steps), cells

``VALUES`` says what a cell may hold.  Where there are more steps than columns, a column is a bin of
steps and a cell the **largest** value in it, with its step: a median would hide the one slow step.
What is not known stays ``UNKNOWN``, with the reason in ``unknown``.  An answer has ``MAX_CELLS``
cells at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..run import STAGE_NAMES, UNKNOWN, Ints, lags
from ..run.intervals import union_of_groups
from .run_summary import merged_steps
from .runs import NotThereError
from .scene import RankScene, Scene
from .words import time_text

MAX_CELLS = 200_000

_WIRE = STAGE_NAMES.index("wire")

_Rows = list[Ints]
"""Of each rank the value of each of its steps, in the order of ``RankScene.number``."""


def heat_map(scene: Scene, value: str, columns: int) -> dict[str, Any]:
    """Return the cells, row after row, ns; ``UNKNOWN`` where nobody knows.

    ``step``: of each column the first step, ``at``: of each cell how many steps further its value
    was, where a column has several (``bin_steps``).  ``low``, ``high``: the range of the steps
    that count, if any does.  Raises ``NotThereError`` for a value that is none of ``VALUES``,
    ``ValueError`` for no columns.
    """
    if columns < 1:
        raise ValueError("columns must be at least 1")
    steps, cells = cells_of(scene, value)
    room = max(1, min(columns, MAX_CELLS // max(1, len(scene.ranks))))
    bin_steps = max(1, -(-len(steps) // room))
    known = _known(cells[:, counted_steps(scene, steps)])
    known = known if len(known) else _known(cells)
    largest, at = _largest(cells, bin_steps)
    return {
        "value": value,
        "ranks": [r.rank for r in scene.ranks],
        "steps": len(steps),
        "bin_steps": bin_steps,
        "step": steps[::bin_steps].tolist(),
        "last_step": int(steps[-1]) if len(steps) else 0,
        "cells": largest.ravel().tolist(),
        "at": (steps[at] - steps[::bin_steps]).ravel().tolist() if bin_steps > 1 else [],
        "low": int(known.min()) if len(known) else 0,
        "high": int(known.max()) if len(known) else 0,
        "unknown": (unknown := _why_unknown(scene, value, cells)),
        "note": _note(bin_steps, unknown, _clocks_unsure(scene) if value == "lag" else 0),
    }


def _note(bin_steps: int, unknown: str, unsure: int) -> str:
    """Return what is to know of the cells; "" if nothing is."""
    notes = (
        f"{bin_steps} steps a column, the largest is shown" if bin_steps > 1 else "",
        f"hatched: {unknown}" if unknown else "",
        f"clocks are known to {time_text(unsure)}" if unsure else "",
    )
    return " · ".join(filter(None, notes))


def cells_of(scene: Scene, value: str) -> tuple[Ints, Ints]:
    """Return the steps of all ranks, and the values by rank and step, ns.

    Of a step that a file has twice it is the larger one.  Raises ``NotThereError`` for a value that
    is none of ``VALUES``.
    """
    if value not in VALUES:
        raise NotThereError(f"value is one of {', '.join(VALUES)}")
    steps = scene.step_numbers
    cells: Ints = np.full((len(scene.ranks), len(steps)), UNKNOWN)
    rows = VALUES[value](scene)
    for cell, rank, own in zip(cells, scene.ranks, rows, strict=True):
        np.maximum.at(cell, np.searchsorted(steps, rank.number), own)
    return steps, cells


def _known(cells: Ints) -> Ints:
    found: Ints = cells[cells != UNKNOWN]
    return found


def counted_steps(scene: Scene, steps: Ints) -> Ints:
    """Return the places of the steps that enter statistics on all ranks."""
    odd = [r.number[~r.counts] for r in scene.ranks]
    found: Ints = np.flatnonzero(~np.isin(steps, np.concatenate([[], *odd])))
    return found


def _largest(cells: Ints, bin_steps: int) -> tuple[Ints, Ints]:
    """Return the largest of each ``bin_steps`` columns, and in which column it was."""
    ranks, steps = cells.shape
    bins = -(-steps // bin_steps)
    padded = np.full((ranks, bins * bin_steps), UNKNOWN)
    padded[:, :steps] = cells
    folded = padded.reshape(ranks, bins, bin_steps)
    at: Ints = folded.argmax(axis=2)
    largest = np.take_along_axis(folded, at[:, :, None], axis=2)[:, :, 0]
    return largest, at + np.arange(bins) * bin_steps


def _lag(scene: Scene) -> _Rows:
    """Return the ns that each rank came after the first one, where that was the most."""
    found = []
    for rank, lag in zip(scene.ranks, lags(scene.run, scene.model), strict=True):
        steps, columns = rank.track.steps, rank.track.buckets
        most = np.full(len(steps) + 1, UNKNOWN)  # the last one: of buckets whose step has no line
        np.maximum.at(most, steps.rows_of(columns.model, columns.step), lag.ns)
        found.append(most[rank.steps.row])
    return found


def _part(rank: RankScene, is_wait: bool) -> Ints:
    """Return of each step the ns in which at least one collective waited, or transferred.

    ``UNKNOWN`` for a step in which the split of any of its collectives is unknown.
    """
    track = rank.track
    stages, columns = track.stages, track.buckets
    rows = np.flatnonzero(stages.name == _WIRE)
    bucket = track.bucket_of_stages()[rows]
    step = track.steps.rows_of(columns.model[bucket], columns.step[bucket])
    rows, bucket, step = rows[step >= 0], bucket[step >= 0], step[step >= 0]
    waited = rank.waited[rows]
    begin = columns.ready[bucket] + stages.start[rows]
    turn = begin + np.maximum(waited, 0)
    end = columns.ready[bucket] + stages.end[rows]
    ends = (begin, turn) if is_wait else (turn, end)
    part = union_of_groups(step, *ends, len(track.steps)).astype(np.int64)
    part[np.bincount(step, minlength=len(track.steps)) == 0] = UNKNOWN
    part[step[waited == UNKNOWN]] = UNKNOWN
    return part


def _clocks_unsure(scene: Scene) -> int:
    """Return by how much a lag may be off at most, ns."""
    every = lags(scene.run, scene.model)
    return max((int(one.unsure.max(initial=0)) for one in every), default=0)


def _why_unknown(scene: Scene, value: str, cells: Ints) -> str:
    """Return why there are cells without a value; "" where there are none."""
    if not (cells == UNKNOWN).any():
        return ""
    if value == "lag" and scene.run.unaligned:
        return "the clocks of some ranks were not measured, so nobody knows how late these are"
    if value == "lag" and len(scene.ranks) < 2:
        return "there is one rank"
    if value in ("wait", "transfer") and (why := scene.waits.why_unknown):
        return why
    if value == "period":
        return "a period ends where the next step begins: a rank's last step has none"
    return "the files do not have it of these steps"


VALUES: dict[str, Callable[[Scene], _Rows]] = {
    "exposed": lambda scene: [r.exposed for r in scene.ranks],
    "lag": _lag,
    "period": lambda scene: [r.track.steps.period[r.steps.row] for r in scene.ranks],
    "wire": lambda scene: [r.track.steps.wire_busy[r.steps.row] for r in scene.ranks],
    "wait": lambda scene: [_part(r, True)[r.steps.row] for r in scene.ranks],
    "transfer": lambda scene: [_part(r, False)[r.steps.row] for r in scene.ranks],
}
"""Exposed time; after the first rank; period; with at least one bucket on the wire, and of that
waiting for a last rank, or transferring.  All in ns."""

TITLES = {
    "exposed": "exposed time",
    "lag": "after the first rank",
    "period": "period",
    "wire": "on the wire",
    "wait": "wire: waiting for the last rank",
    "transfer": "wire: transfer",
}
"""What the page calls each of ``VALUES``, in the order in which it offers them."""

MAX_BINS = 300
"""Stretches of steps; a run with fewer steps has one a step."""
_SHARES = (0.05, 0.5, 0.95)


def run_bands(scene: Scene) -> dict[str, Any]:
    """Return ``exposed`` and ``period``: lists with an entry a bin, in ns since the origin and ns.

    ``start``, ``end``: where the bin's steps lie; ``first``, ``last``: the steps.  ``most`` is at
    step ``most_step`` on rank ``most_rank``.  Bins in which nothing is known are left out.  A line
    of the largest values alone says nothing of the others: one slow rank and a run that is slow
    everywhere look alike.
    """
    return {value: _bands(scene, value) for value in ("exposed", "period")}


def _bands(scene: Scene, value: str) -> dict[str, list[int]]:
    steps, cells = cells_of(scene, value)
    counted = counted_steps(scene, steps)
    size = max(1, -(-len(counted) // MAX_BINS))
    firsts = np.arange(0, len(counted), size)
    begun, ended = (merged_steps(scene)[name] for name in ("start", "end"))
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
