"""Ranks of one run in one file for Perfetto, an event a line.

``pid`` is the rank; ``ts`` are microseconds of rank 0's clock since the first event.  The calls of
one bucket in one step are tied by a flow, from the rank that is ready first to the one that is
ready last, so that the length of the arrows is the wait; buckets on devices are not tied.  A rank
whose clock nobody measured says so in its label.

No more than a block of text is held; the columns of the run are, about 500 bytes a bucket.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from ...records.units import named_ranks
from ..document.output import check_writable, writing
from ..run import Run
from ..run.files import progress_bar, read_run
from ..run.scene import Scene
from .rank_events import Event, RankEvents, arrows_of, first_time

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

    ``progress`` is told after each rank how many bytes of text there are.  Raises ``OSError``.
    """
    scenes, info = [Scene(run, model) for model in run.model_names or [""]], run.info
    arrows = [arrows_of(scene) for scene in scenes]
    found = Exported(len(run.tracks), arrows=sum(int((phase > 1).sum()) for phase, _ in arrows))
    other = {
        "run_id": info and info.run_id,
        "world_size": info and info.world_size,
        "ranks_with_unknown_clock": run.unaligned,
    }
    separator = b"\n"
    with ExitStack() as stack:
        file: Any = stack.enter_context(out.open("wb"))
        if out.suffix == ".gz":
            # Without name and time, so that the same run makes the same file.
            zipped = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=4, mtime=0)
            file = stack.enter_context(BufferedWriter(zipped, _BLOCK))

        def emit(event: Event) -> None:
            nonlocal separator
            file.write(separator + _line(event))
            separator = b",\n"
            found.slices += event["ph"] in "XB"

        file.write(b'{"displayTimeUnit":"ms","otherData":%b,"traceEvents":[' % _line(other))
        origin = first_time(scenes)
        for i in range(len(run.tracks)):
            RankEvents(scenes, arrows, i, origin, emit).write()
            if progress is not None:
                progress(file.tell())
        file.write(b"\n]}\n")
    return found


def _line(content: Event) -> bytes:
    """Return an object as JSON in ASCII, which all that read traces take for the same text."""
    line = _encode(content)
    return line if line.isascii() else json.dumps(content).encode()


def run_export(path: str | os.PathLike[str], *, out: Path, rank: int | None = None) -> None:
    """Write all ranks of a run, or one, as one trace; raises ``UsageError``."""
    console = Console(highlight=False, markup=False)
    check_writable(out)
    run = read_run(path, rank)
    with writing(out), progress_bar() as bar:
        task = bar.add_task("writing", total=None)
        exported = export(run, out, progress=lambda done: bar.update(task, completed=done))
    how_many = "1 rank" if exported.ranks == 1 else f"{exported.ranks} ranks"
    console.print(
        f"{out}: {how_many}, {exported.slices:,} slices, {exported.arrows:,} arrows "
        f"between ranks, {out.stat().st_size / 1e6:.1f} MB; open https://ui.perfetto.dev and drop "
        "it there",
        soft_wrap=True,
    )
    if run.unaligned:
        who = named_ranks(run.unaligned)
        console.print(
            Text(f"{who}: clock unknown, placed by its wall clock", style="yellow"),
            soft_wrap=True,
        )
