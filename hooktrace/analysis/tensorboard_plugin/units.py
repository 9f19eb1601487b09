"""What a sharded run (FSDP2) shows in the place of buckets: the collectives of its units.

    Run --units_of--> Unit of each collective --rows_by_kind--> row of each in its rank's lane
    RankTrack --exposed_at--> where training waited for a unit's collective

A lane has rows by kind: parameters that are gathered forward and backward, gradients that are
scattered, and reduced over the replicas.
"""

from __future__ import annotations

import numpy as np

from ...records import UNIT_KINDS, Unit
from ..run import UNKNOWN, Ints, RankTrack, Run
from ..run.run import once

MAX_ROWS = 12
"""Rows of buckets in a rank's lane, at most."""


def rows_of(step: Ints, bucket: Ints, start: Ints, end: Ints) -> Ints:
    """Return the row in a rank's lane, below ``MAX_ROWS``, of each bucket.

    Few buckets: a row for each index, so that a step is a staircase and a bucket is always at the
    same height.  Many: each takes the first row that is free, and the rows begin anew with each
    step.  Where more than ``MAX_ROWS`` are under way at once, some share a row.
    """
    if not len(step):
        return np.zeros(0, np.int64)
    return bucket.copy() if bucket.max() < MAX_ROWS else free_rows(step, start, end)


def free_rows(step: Ints, start: Ints, end: Ints) -> Ints:
    """Return for each bar the first row, below ``MAX_ROWS``, that is free in its step."""
    if not len(step):
        return np.zeros(0, np.int64)
    order = np.lexsort((start, step))
    sorted_step = step[order]
    firsts = np.flatnonzero(np.concatenate(([True], sorted_step[1:] != sorted_step[:-1])))
    sizes = np.diff(np.append(firsts, len(order)))
    busy_to = np.full((len(firsts), MAX_ROWS), np.iinfo(np.int64).min)
    rows: Ints = np.zeros(len(order), np.int64)
    # The k-th bucket of all steps at once: as many turns as a step has buckets.
    for k in range(int(sizes.max())):
        steps = np.flatnonzero(sizes > k)
        at = order[firsts[steps] + k]
        free = busy_to[steps] <= start[at, None]
        chosen = free.argmax(axis=1)
        full = np.flatnonzero(~free.any(axis=1))
        chosen[full] = busy_to[steps[full]].argmin(axis=1)
        busy_to[steps, chosen] = np.maximum(busy_to[steps, chosen], end[at])
        rows[at] = chosen
    return rows


class Spans:
    """Stretches of time, ns since the origin, by their ``start``.

    ``row``: of each in the track's columns.
    """

    def __init__(self, row: Ints, start: Ints, end: Ints) -> None:
        order = np.argsort(start, kind="stable")
        self.row, self.start = row[order], start[order]
        self.end: Ints = np.maximum(end, start)[order]
        self._until = np.maximum.accumulate(self.end)

    def inside(self, t0: int, t1: int) -> Ints:
        """Return the places of those that overlap a stretch."""
        low = int(np.searchsorted(self._until, t0))
        high = int(np.searchsorted(self.start, t1, side="right"))
        found: Ints = low + np.flatnonzero(self.end[low:high] >= t0)
        return found


KINDS = ("all-gather fwd", "all-gather bwd", "reduce-scatter", "all-reduce", "not known")
"""Of ``UNIT_KINDS``, as the rows are titled; the last: of a file whose layout is not there."""

_NOTHING = np.zeros(0, np.int64)

EXPOSED_UNKNOWN = "not known: its record does not say what training waited for it"


@once
def units_of(run: Run, model: str) -> list[Unit]:
    """Return what the collectives of a model are, on all ranks; nothing where it is not sharded."""
    found: dict[Unit, None] = {}
    for track in run.tracks:
        rows = track.is_of(track.buckets, model) & track.buckets.having("sharded")
        for facts in np.unique(track.buckets.facts[rows]).tolist():
            unit = track.facts[facts].unit
            if unit is not None:
                found[unit] = None
    return list(found)


def unit_of(track: RankTrack, row: int) -> Unit | None:
    """Return what a bucket's row is; ``None`` for a bucket."""
    return track.facts[int(track.buckets.facts[row])].unit


def call_name(track: RankTrack, row: int) -> str:
    """Return what people call a row: ``bucket 3``, or a unit's collective."""
    unit = unit_of(track, row)
    return f"bucket {track.buckets.bucket[row]}" if unit is None else str(unit)


def kind_words(unit: Unit) -> str:
    """Return what a collective does, in words."""
    again = f", call {unit.turn + 1} of the step" if unit.turn else ""
    if unit.collective == "all_gather":
        return f"all-gather, {unit.phase} pass{again}"
    return f"reduce-scatter{again}" if unit.collective == "reduce_scatter" else f"all-reduce{again}"


def index_of(track: RankTrack, rows: Ints, units: list[Unit]) -> Ints:
    """Return which of ``units`` each row is; ``UNKNOWN`` where it is none."""
    at = {unit: index for index, unit in enumerate(units)}
    of_facts = [UNKNOWN if f.unit is None else at.get(f.unit, UNKNOWN) for f in track.facts]
    found: Ints = np.array([*of_facts, UNKNOWN], np.int64)[track.buckets.facts[rows]]
    return found


def rows_by_kind(
    ranks: list[tuple[Ints, Ints, Spans]], units: list[Unit]
) -> tuple[list[Ints], list[str]]:
    """Return the row of each collective, a list a rank, and the rows' titles.

    ``ranks``: of each rank which of ``units``, which step, and when.  Collectives of one kind that
    are under way at once have a row each; kinds that no rank has take no room.
    """
    of_unit = np.array([*(UNIT_KINDS.index(one.kind) for one in units), len(UNIT_KINDS)])
    kinds = [of_unit[unit] for unit, _, _ in ranks]
    rows = [
        _subrows(kind, step, spans) for kind, (_, step, spans) in zip(kinds, ranks, strict=True)
    ]
    every, sub = np.concatenate([*kinds, _NOTHING]), np.concatenate([*rows, _NOTHING])
    heights = [int(sub[every == kind].max(initial=-1)) + 1 for kind in range(len(KINDS))]
    first = np.cumsum([0, *heights[:-1]])
    titles = [
        title if row == 0 else ""
        for title, height in zip(KINDS, heights, strict=True)
        for row in range(height)
    ]
    return [first[kind] + own for kind, own in zip(kinds, rows, strict=True)], titles


def _subrows(kind: Ints, step: Ints, spans: Spans) -> Ints:
    """Return the place of each collective among those of its kind that are under way."""
    found: Ints = np.zeros(len(kind), np.int64)
    for one in np.unique(kind).tolist():
        at = np.flatnonzero(kind == one)
        found[at] = free_rows(step[at], spans.start[at], spans.end[at])
    return found


def exposed_at(track: RankTrack, calls: Spans, steps: Spans, exposed: Ints) -> Spans:
    """Return where time is exposed: at the end of a DDP step, of a sharded one at each unit.

    ``exposed``: of each of ``steps``.
    """
    sharded = track.steps.having("sharded")[steps.row]
    at_end = np.where(sharded, 0, np.maximum(exposed, 0))
    own = np.flatnonzero(at_end > 0)
    rows, start, end = _parts(track, calls)
    return Spans(
        np.concatenate((steps.row[own], rows)),
        np.concatenate((steps.end[own] - at_end[own], start)),
        np.concatenate((steps.end[own], end)),
    )


def _parts(track: RankTrack, calls: Spans) -> tuple[Ints, Ints, Ints]:
    """Return row, start and end of each stretch in which training waited for a collective.

    It stands still while it issues the collective, which takes all of a synchronous one, and again
    until the end if it comes to wait before that.  A wait that outlasts the collective, since the
    thread woke up late or came when all was there, is drawn before the end, and cut.  On a device,
    which is not kept by issuing, it is the end alone; of what is waited for together too, where a
    part of the time before may be another one's.
    """
    columns, row = track.buckets, calls.row
    waited = np.clip(columns.exposed[row], 0, calls.end - calls.start)
    issuing = np.clip(columns.launched_after[row], 0, waited)
    issuing = np.where(columns.having("device")[row], 0, issuing)
    rows = np.concatenate((row, row))
    begin = np.concatenate((calls.start, calls.end - (waited - issuing)))
    until = np.concatenate((calls.start + issuing, calls.end))
    some = until > begin
    return rows[some], begin[some], until[some]
