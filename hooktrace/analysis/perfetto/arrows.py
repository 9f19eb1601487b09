"""Where each rank's buckets stand in one clock, and which are the same bucket of the same step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...records import Members
from ..timeline import UNKNOWN, Hang, Ints, RankClock, RankTrack, Timeline, groups_of


@dataclass(frozen=True, slots=True)
class PlacedRank:
    """A rank with arrays by row of its buckets; times in rank 0's clock, ns.

    ``phase``: 0 where no other rank has the bucket or it has no length, else 1 on the rank that is
    ready first, 3 on the last one, 2 between.  ``flow``: the same number for the same bucket of the
    same step.  Of hybrid sharding only those ranks have it that are in the collective together.
    """

    track: RankTrack
    clock: RankClock
    start: Ints
    end: Ints
    phase: Ints
    flow: Ints


def placed(timeline: Timeline) -> list[PlacedRank]:
    """Return each rank with the way of its buckets through the ranks."""
    models = {name: i for i, name in enumerate(timeline.models)}
    starts, ends, keys = [], [], []
    for track, clock in zip(timeline.tracks, timeline.clocks, strict=True):
        columns = track.buckets
        # What the clock adds to the host's time of the call, which device times are moved by too.
        start = columns.ready + clock.common(columns.called) - columns.called
        starts.append(start)
        ends.append(start + np.maximum(columns.done - columns.ready, 0))
        ids = np.array([models[name] for name, _ in track.models] or [0])
        keys.append(ids[columns.model] << 52 | columns.step << 20 | columns.bucket)
    phase, flow = _ties(*map(np.concatenate, (keys, _groups(timeline), starts, ends)))
    cuts = np.cumsum([len(one) for one in keys])[:-1]
    parts = (starts, ends, np.split(phase, cuts), np.split(flow, cuts))
    return list(map(PlacedRank, timeline.tracks, timeline.clocks, *parts))


def _groups(timeline: Timeline) -> list[Ints]:
    """Return of each rank's rows a number for the ranks that are in it; ``UNKNOWN``: not known."""
    size = None if timeline.run is None else timeline.run.world_size
    numbers: dict[Members | None, int] = {}
    found = []
    for track in timeline.tracks:
        rows = groups_of(track, size)
        of = np.array([numbers.setdefault(one, len(numbers)) for one in rows.members])
        found.append(np.where(rows.of == UNKNOWN, UNKNOWN, of[np.maximum(rows.of, 0)]))
    return found


def _ties(key: Ints, group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return phase and flow; of ranks that are ready at once the lower, in front, comes first."""
    # An arrow needs a slice of some length to hold on to: without one a bucket is by itself.
    key = np.where((end > start) & (group != UNKNOWN), key, -1 - np.arange(len(key)))
    order = np.lexsort((start, group, key))
    differs = (np.diff(key[order]) != 0) | (np.diff(group[order]) != 0)
    opens, closes = np.append(True, differs), np.append(differs, True)
    phase, flow = np.zeros_like(key), np.zeros_like(key)
    phase[order] = np.where(opens & closes, 0, np.where(opens, 1, np.where(closes, 3, 2)))
    flow[order] = np.cumsum(opens)
    return phase, flow


def first_time(ranks: list[PlacedRank], hangs: Sequence[Hang] = ()) -> int:
    """Return the first of all times that are drawn."""
    times = [np.array([one.start for one in hangs], np.int64)]
    for one in ranks:
        marks = np.array([a.time_ns for a in one.track.records.anomalies], np.int64)
        host = np.concatenate([one.track.steps.first_ready, marks])
        times += [one.start, one.clock.common(host)]
    return int(np.concatenate(times).min(initial=np.iinfo(np.int64).max))
