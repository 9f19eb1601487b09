"""Collectives that belong to no bucket, as bars in a row of their own below a rank's buckets.

RankTrack --other_bars--> Spans, whose rows are places in the listed collectives --drawn--> the page

They are of the process, whichever model's step was sampled, and stand in each model's picture.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...records.other import OtherCollective, OtherCollectives
from ...records.units import size
from ..run import RankClock, RankTrack
from .units import Spans
from .words import time_text

MOST = 300
"""Of a rank in a picture: of more, the longest."""


def listed(track: RankTrack) -> list[tuple[OtherCollective, OtherCollectives]]:
    """Return the collectives that a rank's files list, each with the step that was sampled."""
    return [(one, of) for of in track.records.others for one in of.collectives]


def other_bars(track: RankTrack, clock: RankClock, origin: int) -> Spans:
    """Return when they were in flight, ns since the origin; where no end is known, for no time."""
    calls = [one for one, _ in listed(track)]
    issued = np.array([one.issued_ns for one in calls], np.int64)
    done = np.array([one.done_ns or one.issued_ns for one in calls], np.int64)
    start, end = clock.common(issued) - origin, clock.common(done) - origin
    return Spans(np.arange(len(calls)), start, np.maximum(start, end))


def drawn(track: RankTrack, bars: Spans, t0: int, t1: int, lane: int) -> list[dict[str, Any]]:
    """Return what the page draws and tells of a stretch of time; times after ``t0``."""
    at, calls = bars.inside(t0, t1), listed(track)
    at = at[np.argsort(bars.start[at] - bars.end[at], kind="stable")[:MOST]]
    return [
        {
            "lane": lane,
            "start": int(bars.start[i]) - t0,
            "end": int(bars.end[i]) - t0,
            "of_ddp": one.of_ddp,
            "title": f"{one.name}, step {of.step} of {of.model}, rank {track.rank}",
            "text": _text(one),
        }
        for i in at.tolist()
        for one, of in [calls[bars.row[i]]]
    ]


def _text(one: OtherCollective) -> str:
    took = "its end is not known"
    if one.done_ns is not None:
        took = f"in flight for {time_text(one.done_ns - one.issued_ns)}"
    sent = "payload unknown" if one.wire_bytes is None else f"{size(one.wire_bytes)} of payload"
    where = f"issued at {one.where or 'an unknown line'} on {one.thread}"
    return f"{sent}, {took}; {where}{', by DDP itself' if one.of_ddp else ''}"
