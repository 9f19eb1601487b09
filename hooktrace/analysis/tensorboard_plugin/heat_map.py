"""A run as ranks by steps: of each cell one time, to find the rank and the step that stand out.

    Scene, value --heat_map--> rows (ranks), columns (steps, or bins of steps), cells
    Scene --run_bands--> the run in stretches of steps: how the values of all ranks lie in each

``VALUES`` says what a cell may hold.  Where there are more steps than columns, a column is a bin of
steps and a cell the **largest** value in it, with its step: a median would hide the one slow step.
What is not known stays ``UNKNOWN``, with the reason in ``unknown``.  An answer has ``MAX_CELLS``
cells at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...records.units import time_text
from ..run import UNKNOWN, Ints, delays
from ..run.parts import union_of_groups
from ..run.scene import Scene
from ..run.waits import PIECES
from .run_summary import step_spans
from .runs import NotThereError

MAX_CELLS = 200_000
MAX_BINS = 300
"""Stretches of steps in bands; a run with fewer steps has one a step."""
_BAND = ("start", "end", "first", "last", "p5", "p50", "p95", "most", "most_rank", "most_step")
_SHARES = (0.05, 0.5, 0.95)
_WIRE, _WAIT = PIECES.index("wire"), PIECES.index("wait")


def heat_map(scene: Scene, value: str, columns: int) -> dict[str, Any]:
    """Return the cells, row after row, ns; ``UNKNOWN`` where nobody knows.

    ``step``: of each column the first step, ``at``: of each cell how many steps further its value
    was, where a column has several (``bin_steps``).  ``low``, ``high``: the range of the steps
    that count, if any does.  Raises ``NotThereError`` for a value that is none of ``VALUES``,
    ``ValueError`` for no columns.
    """
    if columns < 1:
        raise ValueError("columns must be at least 1")
    steps, cells = scene.step_numbers, cells_of(scene, value)
    room = max(1, min(columns, MAX_CELLS // max(1, len(cells))))
    size = max(1, -(-len(steps) // room))
    counted = cells[:, counted_steps(scene)]
    known = counted[counted != UNKNOWN]
    known = known if len(known) else cells[cells != UNKNOWN]
    padded = np.full((len(cells), -(-len(steps) // size) * size), UNKNOWN)
    padded[:, : len(steps)] = cells
    bins = padded.reshape(len(cells), -1, size)
    at = bins.argmax(axis=2) + np.arange(bins.shape[1]) * size
    unknown = _why_unknown(scene, value) if (cells == UNKNOWN).any() else ""
    every = delays(scene.run, scene.model) if value == "delay" else ()
    unsure = max((int(one.unsure.max(initial=0)) for one in every), default=0)
    notes = (
        f"{size} steps a column, the largest is shown" if size > 1 else "",
        f"hatched: {unknown}" if unknown else "",
        f"clocks are known to {time_text(unsure)}" if unsure else "",
    )
    return {
        "value": value,
        "ranks": scene.numbers,
        "steps": len(steps),
        "bin_steps": size,
        "step": steps[::size].tolist(),
        "last_step": int(steps[-1]) if len(steps) else 0,
        "cells": bins.max(axis=2).ravel().tolist(),
        "at": (steps[at] - steps[::size]).ravel().tolist() if size > 1 else [],
        "low": int(known.min()) if len(known) else 0,
        "high": int(known.max()) if len(known) else 0,
        "unknown": unknown,
        "note": " · ".join(filter(None, notes)),
    }


def cells_of(scene: Scene, value: str) -> Ints:
    """Return the values by rank and step, ns; raises ``NotThereError`` for none of ``VALUES``."""
    if value not in VALUES:
        raise NotThereError(f"value is one of {', '.join(VALUES)}")
    return scene.cells(VALUES[value][1](scene))


def counted_steps(scene: Scene) -> Ints:
    """Return the places of the steps that enter statistics on all ranks."""
    odd = scene.steps.number[~scene.steps.counts]
    return np.flatnonzero(~np.isin(scene.step_numbers, odd))


def _delay(scene: Scene) -> Ints:
    """Return the ns that each rank came after the first one, where that was the most."""
    found = []
    for track, delay in zip(scene.tracks, delays(scene.run, scene.model), strict=True):
        steps, buckets = track.steps, track.buckets
        most = np.full(len(steps) + 1, UNKNOWN)  # the last one: of buckets whose step has no line
        np.maximum.at(most, steps.rows_of(buckets.model, buckets.step), delay.ns)
        found.append(most)
    return scene.steps.gather(found)


def _part(scene: Scene, kind: int) -> Ints:
    """Return of each step the ns in which at least one collective waited, or transferred.

    ``UNKNOWN`` for a step in which the split of any of its collectives is unknown.
    """
    found = []
    for i, track in enumerate(scene.tracks):
        bars = scene.bars.at(scene.bars.of_rank(i))
        pieces = scene.pieces(bars)
        steps = track.steps.rows_of(track.buckets.model, track.buckets.step)
        count = len(track.steps)
        row = steps[bars.row][pieces.of]
        is_wire = ((pieces.kind == _WIRE) | (pieces.kind == _WAIT)) & (row != UNKNOWN)
        own = is_wire & (pieces.kind == kind)
        part = union_of_groups(row[own], pieces.start[own], pieces.end[own], count)
        part[np.bincount(row[is_wire], minlength=count) == 0] = UNKNOWN
        part[row[is_wire & (pieces.waited == UNKNOWN)]] = UNKNOWN
        found.append(part.astype(np.int64))
    return scene.steps.gather(found)


def _why_unknown(scene: Scene, value: str) -> str:
    if value in ("wait", "transfer") and (why := scene.waits.why_unknown):
        return why
    if value == "period":
        return "a period ends where the next step begins: a rank's last step has none"
    return "the files do not have it of these steps"


VALUES: dict[str, tuple[str, Callable[[Scene], Ints]]] = {
    "exposed": ("exposed time", lambda scene: scene.steps.exposed),
    "delay": ("after the first rank", _delay),
    "period": ("period", lambda scene: scene.steps.period),
    "wire": (
        "on the wire",
        lambda scene: scene.steps.gather(track.steps.wire_in_flight for track in scene.tracks),
    ),
    "wait": ("wire: waiting for the last rank", lambda scene: _part(scene, _WAIT)),
    "transfer": ("wire: transfer", lambda scene: _part(scene, _WIRE)),
}
"""What the page calls each value, in the order in which it offers them, and the ns of each of
``Scene.steps``.  Of several collectives that are on the wire at once, an instant counts once."""


def run_bands(scene: Scene) -> dict[str, Any]:
    """Return ``exposed`` and ``period``: lists with an entry a bin, in ns since the origin and ns.

    ``start``, ``end``: where the bin's steps lie; ``first``, ``last``: the steps.  ``most`` is at
    step ``most_step`` on rank ``most_rank``.  Bins in which nothing is known are left out.  A line
    of the largest values alone says nothing of the others: one slow rank and a run that is slow
    everywhere look alike.
    """
    return {value: _bands(scene, value) for value in ("exposed", "period")}


def _bands(scene: Scene, value: str) -> dict[str, list[int]]:
    cells, counted, (start, end) = cells_of(scene, value), counted_steps(scene), step_spans(scene)
    size = max(1, -(-len(counted) // MAX_BINS))
    found: dict[str, list[int]] = {name: [] for name in _BAND}
    for at in range(0, len(counted), size):
        own = counted[at : at + size]
        values, numbers = cells[:, own], scene.step_numbers[own]
        known = values[values != UNKNOWN]
        if len(known):
            rank, step = np.unravel_index(int(values.argmax()), values.shape)
            span = start[own].min(), end[own].max(), numbers[0], numbers[-1]
            most = values.max(), scene.numbers[int(rank)], numbers[step]
            row = (*span, *np.rint(np.quantile(known, _SHARES)), *most)
            for name, number in zip(_BAND, row, strict=True):
                found[name].append(int(number))
    return found
