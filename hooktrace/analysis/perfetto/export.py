"""Ranks of one run in one file for Perfetto, an event a line.

``pid`` is the rank; ``ts`` are microseconds of rank 0's clock since the first event.  The calls of
one bucket in one step are tied by a flow, from the rank that is ready first to the one that is
ready last, so that the length of the arrows is the wait; buckets on devices are not tied.  A rank
whose clock nobody measured says so in its label.

No more than a block of text is held; the columns of the run are, about 300 bytes a bucket.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from ..run import Run, hangs, reasons
from .rank_events import Event, RankEvents, first_time, tied

_BLOCK = 1 << 20
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Exported:
    """What was written: ranks, slices (events with a duration) and arrows between two ranks."""

    ranks: int = 0
    slices: int = 0
    arrows: int = 0


def export(run: Run, out: Path, *, progress: Callable[[int], None] | None = None) -> Exported:
    """Write all ranks of a run as one file for Perfetto, compressed where ``out`` ends in ``.gz``.

    ``progress`` is told how many bytes of text have been written.  Raises ``OSError``.
    """
    found = Exported(ranks=len(run.tracks))
    with ExitStack() as stack:
        file: BinaryIO | gzip.GzipFile = stack.enter_context(out.open("wb"))
        if out.suffix == ".gz":
            file = stack.enter_context(
                gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=4, mtime=0)
            )
        done, block = 0, bytearray()
        for text in _pieces(run, found):
            block += text
            if len(block) >= _BLOCK:
                file.write(block)
                done += len(block)
                block.clear()
                if progress is not None:
                    progress(done)
        file.write(block)
    return found


def _pieces(run: Run, found: Exported) -> Iterator[bytes]:
    info = run.info
    other = {
        "run_id": info and info.run_id,
        "world_size": info and info.world_size,
        "ranks_with_unknown_clock": run.unaligned,
    }
    yield b'{"displayTimeUnit":"ms","otherData":%b,"traceEvents":[' % _line(other)
    ranks = tied(run)
    found.arrows = sum(int(np.count_nonzero(one.phase > 1)) for one in ranks)
    hung = hangs(run)
    origin, separator = first_time(ranks, hung), b"\n"
    for one, why in zip(ranks, reasons(run), strict=True):
        for event in RankEvents(one, origin, why, hung).events():
            found.slices += event["ph"] in "XB"
            yield separator + _line(event)
            separator = b",\n"
    yield b"\n]}\n"


def _line(content: Event) -> bytes:
    """Return an object as JSON in ASCII, which all that read traces take for the same text."""
    line = _encode(content)
    return line if line.isascii() else json.dumps(content).encode()
