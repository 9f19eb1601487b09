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
from .columns import Ints, RankTrack, StepColumns
from .run import Run, once

_Key = tuple[int, str, int, int]


@dataclass(frozen=True, slots=True)
class Hang:
    """One hang, all files together.

    ``record``: the last that was made while it lasted, whose ``message`` says what was the case.
    ``start``: when the wait began, and ``end``: when it was over, ns of rank 0's clock; ``end`` is
    ``None`` where no file knows of an end, and too late by the time until it was seen, or until the
    step ended; on a device too early, by as much as the host called ahead of it.  ``last_word``:
    what the record of its end says, ``None`` where there is none and steps alone tell.
    ``failed``: that record says that what ranks waited in failed.  ``went_on``: it is over, it has
    not failed, and no rank that waited has the step as broken off.  ``ranks``: whose files have
    it.  ``is_by_device``: the steps that tell its end are timed by a device.
    """

    record: HangRecord
    start: int
    end: int | None
    last_word: str | None
    failed: bool
    went_on: bool
    ranks: tuple[int, ...]
    is_by_device: bool = False

    @property
    def outcome(self) -> str:
        """Whether it went on, and after how long, as far as that is known."""
        if self.took_ns is None:
            return "no end of it is recorded"
        if self.failed and self.last_word:
            return self.last_word
        device = self.last_word is None and self.is_by_device
        after = f"after {'about' if device else 'at most'} {self.took_ns / 1e9:.3g} s"
        if not self.went_on:
            return f"it was over {after}, but the step broke off"
        told = "" if self.last_word is not None else ", by the steps that follow"
        return f"it went on {after}{told}"

    @property
    def took_ns(self) -> int | None:
        """How long it took, ns; ``None`` where no end is known."""
        return None if self.end is None else self.end - self.start


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
    start, over = _start(run, record), [r for r in records if r.ended_after_ns is not None]
    after = max((r.ended_after_ns or 0 for r in over), default=None)
    end = _end_by_steps(run, record) if after is None else start + after
    words = [first_line(r.message) for r in over if r.message != record.message]
    last_word = (words or [""])[-1] if over else None
    failed = any(r.failed for r in over)
    return Hang(
        record=record,
        start=start,
        end=None if end is None else max(end, start),
        last_word=last_word,
        failed=failed,
        went_on=end is not None and not failed and not _broke_off(run, record),
        ranks=tuple(sorted(by_rank)),
        is_by_device=any(
            track.steps.having("device").any() for track, _ in _that_waited(run, record)
        ),
    )


def _start(run: Run, record: HangRecord) -> int:
    """Return when the wait began: by the clock of who recorded it, else by the wall clock."""
    for track, clock in zip(run.tracks, run.clocks, strict=True):
        if track.rank == record.rank and track.records.run is not None:
            return int(clock.common(np.array([record.since_ns]))[0])
    for track, clock in zip(run.tracks, run.clocks, strict=True):
        if (info := track.records.run) is not None:
            host = record.since_wall_ns - info.wall_anchor_ns + info.host_anchor_ns
            return int(clock.common(np.array([host]))[0])
    return record.since_ns


def _end_by_steps(run: Run, record: HangRecord) -> int | None:
    """Return when the last of the ranks that waited had the step whole; ``None`` if one has not."""
    ends: list[int] = []
    for track, clock in _that_waited(run, record):
        at = _whole_step_after(track, record)
        if at is None:
            return None
        ends.append(int(clock.common(_done(track.steps, at))[0]))
    return max(ends, default=None)


def _done(steps: StepColumns, at: int) -> Ints:
    """Return when a step was done; of one on a device the host knows only when it was enqueued."""
    row = slice(at, at + 1)
    by_device = steps.first_ready[row] + steps.communication[row]
    return np.where(steps.having("device")[row], by_device, steps.done[row])


def _broke_off(run: Run, record: HangRecord) -> bool:
    """Return whether a rank that waited has the step as not complete, and no whole one after it."""
    for track, _ in _that_waited(run, record):
        steps = track.steps
        own = track.is_of(steps, record.model) & (steps.step == record.step)
        if (own & steps.having("incomplete")).any() and _whole_step_after(track, record) is None:
            return True
    return False


def _that_waited(run: Run, record: HangRecord) -> list[tuple[RankTrack, RankClock]]:
    ranks = zip(run.tracks, run.clocks, strict=True)
    return [(track, clock) for track, clock in ranks if track.rank in record.waiting]


def _whole_step_after(track: RankTrack, record: HangRecord) -> int | None:
    """Return the row of the first whole step from the hang's on; ``None`` where there is none."""
    first = record.step + (record.bucket < 0)  # where no call waits, the step may be the last whole
    steps = track.steps
    of_model = track.is_of(steps, record.model) & ~steps.having("incomplete")
    after = np.flatnonzero(of_model & (steps.step >= first))
    return int(after[steps.step[after].argmin()]) if len(after) else None
