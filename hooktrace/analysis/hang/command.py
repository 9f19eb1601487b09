"""What the subcommand does: read a run, say what held it up, and give an exit code."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
from rich.console import Console

from ...records.hang import hang_kind
from ..report.run_files import read_run
from ..timeline import Hang, Timeline, hangs
from .explain import (
    EarlierHang,
    behind,
    dump_lines,
    earlier_hangs,
    earlier_lines,
    end_lines,
    hang_lines,
    missing_lines,
    rank_ends,
)

SCHEMA = 1
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""
NONE, LASTS, APART = 0, 1, 3
"""Exit codes: no hang, or it went on; a hang of which no end is known, or whose step broke off;
none recorded, but files without their end, whose last whole steps differ.  2 is for what cannot be
read."""


def run_hang(run: str | os.PathLike[str], *, stacks: bool = False, as_json: bool = False) -> int:
    """Print what is known of the hangs of a run; returns the exit code, raises ``UsageError``.

    ``stacks``: with those of each rank.  ``as_json``: for programs, always with them.
    """
    timeline = read_run(run)
    found = hangs(timeline)
    if as_json:
        Console().file.write(hang_json(timeline, found))
    else:
        console = Console(highlight=False, markup=False, soft_wrap=True)
        for line in _lines(timeline, found, stacks):
            console.print(line)
    if found:
        return LASTS if not all(one.went_on for one in found) else NONE
    ends = rank_ends(timeline)
    return APART if behind(ends) and not all(end.closed for end in ends) else NONE


def _lines(timeline: Timeline, found: list[Hang], stacks: bool) -> list[str]:
    ends = rank_ends(timeline)
    lines: list[str] = []
    for one in found:
        told = hang_lines(one, ends, time.time_ns(), stacks=stacks)
        lines += [*([""] if lines else []), *told]
        lines += dump_lines(_dumps(timeline, one)) if stacks else []
    if not found:
        lines += end_lines(ends, behind(ends))
    size = timeline.run.world_size if timeline.run is not None else 0
    others = [track.rank for track in timeline.other_runs]
    lines += missing_lines([end.rank for end in ends], others, size, timeline.unread)
    return [*lines, *earlier_lines(_earlier(timeline))]


def _folders(timeline: Timeline) -> list[Path]:
    return sorted({Path(path).parent for track in timeline.tracks for path in track.paths})


def _earlier(timeline: Timeline) -> list[EarlierHang]:
    return [one for folder in _folders(timeline) for one in earlier_hangs(folder)]


def _dumps(timeline: Timeline, hang: Hang) -> list[Path]:
    """Return the files that ``on_hang="dump"`` left beside the records, not those of older runs."""
    pattern = f"hang{hang.record.hang:03}-rank*.txt"
    found = (path for folder in _folders(timeline) for path in folder.glob(pattern))
    return sorted(p for p in found if p.stat().st_mtime_ns >= hang.record.since_wall_ns)


def hang_json(timeline: Timeline, found: list[Hang]) -> str:
    """Return the hangs and the ends of the files, as one JSON object with a newline at its end."""
    ends = rank_ends(timeline)
    content = {
        "schema": SCHEMA,
        "run": timeline.run,
        "hangs": [_content(one) for one in found],
        "ranks": ends,
        "behind": behind(ends),
        "earlier": _earlier(timeline),
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def _content(hang: Hang) -> dict[str, object]:
    record = msgspec.structs.asdict(hang.record)
    record.pop("ended_after_ns")
    return {
        **record,
        "sentence": hang.sentence,
        "remedy": hang_kind(hang.record.kind).remedy_of(hang.record.unit),
        "ended": hang.end is not None,
        "ended_after_ns": hang.took_ns,
        "went_on": hang.went_on,
        "outcome": hang.outcome,
        "recorded_by": hang.ranks,
    }
