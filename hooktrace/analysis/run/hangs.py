"""Hangs of a run: what the files of all ranks say of each, once.

    HangRecords of each rank's files --hangs--> Hang: since when, whether it went on, who has it

Every rank gets the record of a hang, so it may stand in many files.  It is over where a record says
so, or where the ranks that waited have the step in their files as whole: then it went on, whoever
could not tell any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...records import HangRecord
from ...records.hang import first_line
from .clock import RankClock
from .columns import RankTrack
from .run import Run, once

_Key = tuple[int, str, int, int]


@dataclass(frozen=True, slots=True)
class Hang:
    """One hang, all files together.

    ``record``: the last that was made while it lasted, whose ``message`` says what was the case.
    ``start``: when the wait began, and ``end``: when it was over, ns of rank 0's clock; ``end`` is
    ``None`` where no file knows of an end, and too late by the time until it was seen, or until the
    step ended; on a device too early, by as much as the host called ahead of it.  ``went_on``: it
    is over, it has not failed, and no rank that waited has the step as broken off; ``outcome`` says
    it in words, and after how long.  ``ranks``: whose files have it.
    """

    record: HangRecord
    start: int
    end: int | None
    went_on: bool
    outcome: str
    ranks: tuple[int, ...]


@once
def hangs(run: Run) -> list[Hang]:
    """Return the hangs of a run, those that did not go on first, then by when they began."""
    found: dict[_Key, dict[int, list[HangRecord]]] = {}
    for track in run.tracks:
        for key, records in _of_file(track.records.hangs).items():
            found.setdefault(key, {})[track.rank] = records
    merged = [_merged(run, by_rank) for by_rank in found.values()]
    return sorted(merged, key=lambda one: (one.went_on, one.start))


def _of_file(records: list[HangRecord]) -> dict[_Key, list[HangRecord]]:
    """Return a file's records by hang; that of an end belongs to the last one of its number."""
    found: dict[_Key, list[HangRecord]] = {}
    current: dict[int, _Key] = {}
    for one in records:
        if one.ended_after_ns is None or one.hang not in current:
            current[one.hang] = (one.hang, one.model, one.step, one.bucket)
        found.setdefault(current[one.hang], []).append(one)
    return found


def _merged(run: Run, by_rank: dict[int, list[HangRecord]]) -> Hang:
    records = [record for of_rank in by_rank.values() for record in of_rank]
    lasting = [of_rank for of_rank in by_rank.values() if of_rank[0].ended_after_ns is None]
    # A file may lack the last word on the kind: the one that was told most often has it.
    said = [one for one in max(lasting, key=len, default=records) if one.ended_after_ns is None]
    record = (said or records)[-1]
    start, waited = _start(run, record), [r for r in run.ranks if r[0].rank in record.waiting]
    over = [one for one in records if one.ended_after_ns is not None]
    end = start + max(one.ended_after_ns or 0 for one in over) if over else _end(waited, record)
    end = None if end is None else max(end, start)
    failed = any(one.failed for one in over)
    broke_off = any(_broke_off(track, record) for track, _ in waited)
    words = [first_line(one.message) for one in over if one.message != record.message]
    if end is None:
        outcome = "no end of it is recorded"
    elif failed and words:
        outcome = words[-1]
    else:
        is_by_device = any(track.steps.having("device").any() for track, _ in waited)
        most = "about" if is_by_device and not over else "at most"
        after = f"after {most} {(end - start) / 1e9:.3g} s"
        outcome = f"it went on {after}" + ("" if over else ", by the steps that follow")
        if failed or broke_off:
            outcome = f"it was over {after}, but the step broke off"
    went_on = end is not None and not failed and not broke_off
    return Hang(record, start, end, went_on, outcome, tuple(sorted(by_rank)))


def _start(run: Run, record: HangRecord) -> int:
    """Return when the wait began: by the clock of who recorded it, else by the wall clock."""
    known = [(one.records.run, clock) for one, clock in run.ranks if one.records.run is not None]
    for info, clock in known:
        if info.rank == record.rank:
            return clock.at(record.since_ns)
    for info, clock in known:
        return clock.at(record.since_wall_ns - info.wall_ns(0))
    return record.since_ns


def _end(waited: list[tuple[RankTrack, RankClock]], record: HangRecord) -> int | None:
    """Return when the last of the ranks that waited had the step whole; ``None`` if one has not."""
    ends: list[int] = []
    for track, clock in waited:
        at = _whole_step_after(track, record)
        if at is None:
            return None
        steps = track.steps
        done = steps.done[at]
        if steps.having("device")[at]:  # the host knows only when it was enqueued
            done = steps.first_ready[at] + steps.communication[at]
        ends.append(clock.at(int(done)))
    return max(ends, default=None)


def _broke_off(track: RankTrack, record: HangRecord) -> bool:
    """Return whether a rank has the step as not complete, and no whole one after it."""
    own = track.is_of(track.steps, record.model) & (track.steps.step == record.step)
    is_cut = bool((own & track.steps.having("incomplete")).any())
    return is_cut and _whole_step_after(track, record) is None


def _whole_step_after(track: RankTrack, record: HangRecord) -> int | None:
    """Return the row of the first whole step from the hang's on; ``None`` where there is none."""
    first = record.step + (record.bucket < 0)  # where no call waits, the step may be the last whole
    steps = track.steps
    of_model = track.is_of(steps, record.model) & ~steps.having("incomplete")
    after = np.flatnonzero(of_model & (steps.step >= first))
    return int(after[steps.step[after].argmin()]) if len(after) else None
