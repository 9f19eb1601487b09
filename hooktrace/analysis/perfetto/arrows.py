"""Where each rank's buckets stand in one clock, and which are the same bucket of the same step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..timeline import Ints, Timeline


@dataclass(frozen=True, slots=True)
class Arrows:
    """By rank and row of its buckets; times in rank 0's clock, ns.

    ``phase``: 0 where no other rank has the bucket or it has no length, else 1 on the rank that is
    ready first, 3 on the last one, 2 between.  ``flow``: the same number for the same bucket of the
    same step.
    ``origin_ns``: the first of all times.  ``count``: arrows from one rank to the next.
    """

    starts: list[Ints]
    ends: list[Ints]
    phase: list[npt.NDArray[np.int8]]
    flow: list[Ints]
    origin_ns: int
    count: int


def arrows(timeline: Timeline) -> Arrows:
    """Return the flow of each bucket through the ranks."""
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
    sizes = [len(one) for one in keys]
    key = np.concatenate(keys) if keys else np.zeros(0, np.int64)
    start = np.concatenate(starts) if starts else np.zeros(0, np.int64)
    # An arrow needs a slice of some length to hold on to: without one a bucket is by itself.
    long = np.concatenate([end > begin for begin, end in zip(starts, ends, strict=True)] or [key])
    key = np.where(long, key, -1 - np.arange(len(key)))
    # Of ranks that are ready at once the lower comes first, as it does in the file.
    order = np.lexsort((np.repeat(np.arange(len(sizes)), sizes), start, key))
    opens = np.ones(len(key), bool)
    opens[1:] = key[order][1:] != key[order][:-1]
    closes = np.append(opens[1:], True) if len(key) else opens
    phase, flow = np.zeros(len(key), np.int8), np.zeros(len(key), np.int64)
    phase[order] = np.where(opens & closes, 0, np.where(opens, 1, np.where(closes, 3, 2)))
    flow[order] = np.cumsum(opens)
    cuts = np.cumsum(sizes)[:-1].astype(np.int64)
    return Arrows(
        starts=starts,
        ends=ends,
        phase=np.split(phase, cuts),
        flow=np.split(flow, cuts),
        origin_ns=_origin(timeline, starts),
        count=int(np.count_nonzero(phase > 1)),
    )


def _origin(timeline: Timeline, starts: list[Ints]) -> int:
    firsts = [int(one.min()) for one in starts if len(one)]
    for track, clock in zip(timeline.tracks, timeline.clocks, strict=True):
        marks = np.array([a.time_ns for a in track.records.anomalies], dtype=np.int64)
        for host in (track.steps.first_ready, marks):
            firsts += [int(clock.common(host).min())] if len(host) else []
    return min(firsts, default=0)
