"""Ranks of one run in one file for Perfetto.

    Timeline --rank_events.py, one rank after another--> events, one a line --> file

``pid`` is the rank; ``ts`` are microseconds of rank 0's clock since the first event.  The calls of
one bucket in one step are tied by a flow, from the rank that is ready first to the one that is
ready last, so that the length of the arrows is the wait.  A rank whose clock nobody measured says
so in its label.

No more than a block of text is held; the columns of the timeline are, about 300 bytes a bucket.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..timeline import Timeline
from .arrows import arrows
from .rank_events import RankEvents

_BLOCK = 1 << 20


@dataclass(slots=True)
class Exported:
    """What was written: ranks, slices (events with a duration) and arrows between two ranks."""

    ranks: int = 0
    slices: int = 0
    arrows: int = 0


def export(
    timeline: Timeline, out: Path, *, progress: Callable[[int], None] | None = None
) -> Exported:
    """Write all ranks of a run as one file for Perfetto, compressed where ``out`` ends in ``.gz``.

    ``progress`` is told how many bytes of text have been written.  Raises ``OSError``.
    """
    found = Exported(ranks=len(timeline.tracks))
    with ExitStack() as stack:
        raw = stack.enter_context(out.open("wb"))
        file: BinaryIO | gzip.GzipFile = raw
        if out.suffix == ".gz":
            file = stack.enter_context(
                gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=4, mtime=0)
            )
        done, held, parts = 0, 0, []
        for text in _pieces(timeline, found):
            parts.append(text)
            held += len(text)
            if held >= _BLOCK:
                file.write("".join(parts).encode("ascii"))
                done, held, parts = done + held, 0, []
                if progress is not None:
                    progress(done)
        file.write("".join(parts).encode("ascii"))
    return found


def _pieces(timeline: Timeline, found: Exported) -> Iterator[str]:
    run = timeline.run
    other = {
        "run_id": None if run is None else run.run_id,
        "world_size": None if run is None else run.world_size,
        "ranks_with_unknown_clock": timeline.unaligned,
    }
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(other)},"traceEvents":[\n'
    ties = arrows(timeline)
    found.arrows = ties.count
    separator = ""
    for i, (track, clock) in enumerate(zip(timeline.tracks, timeline.clocks, strict=True)):
        writer = RankEvents(track, clock, ties, i)
        for event in writer.events():
            yield f"{separator}{event}"
            separator = ",\n"
        found.slices += writer.slices
    yield "\n]}\n"
