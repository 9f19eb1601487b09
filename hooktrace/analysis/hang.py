"""``hooktrace hang``: what held a job up, from the files of the ranks that could still write.

    Run, its Hangs --document--> the sentence; who waits for whom, since when, what to do; stacks
    Run --rank_ends--> RankEnd of each rank: how far it came

Where no hang was recorded the files' ends say how far each rank came, and nothing more is said.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console

from ..records.hang import called, hang_kind
from ..records.units import named_ranks
from .document.output import json_text
from .document.terminal import show
from .document.tree import Code, Heading, Items, Node, Pairs, Text
from .run import Hang, RankTrack, Run, hangs
from .run.files import read_run
from .run.missing import missing_of_run

SCHEMA = 2
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""
NONE, LASTS, APART = 0, 1, 3
"""Exit codes: no hang, or it went on; a hang of which no end is known, or whose step broke off;
none recorded, but files without their end, whose last whole steps differ.  2 is for what cannot be
read."""


def run_hang(path: str | PathLike[str], *, stacks: bool = False, as_json: bool = False) -> int:
    """Print what is known of the hangs of a run; returns the exit code, raises ``UsageError``.

    ``stacks``: with those of each rank.  ``as_json``: for programs, always with them.
    """
    run = read_run(path)
    found = hangs(run)
    console = Console(highlight=False, markup=False)
    if as_json:
        console.file.write(hang_json(run, found))
    else:
        if not console.is_terminal:  # in a pipe or a file each thing that is said is one line
            console.width = 10_000
        show(console, document(run, found, time.time_ns(), stacks=stacks))
    if found:
        return LASTS if not all(one.went_on for one in found) else NONE
    ends = rank_ends(run)
    return APART if are_apart(ends) and not all(end.closed for end in ends) else NONE


def hang_json(run: Run, found: list[Hang]) -> str:
    """Return the hangs and the ends of the files, as one JSON object with a newline at its end."""
    hung = [_content(one) for one in found]
    return json_text({"schema": SCHEMA, "run": run.info, "hangs": hung, "ranks": rank_ends(run)})


def _content(hang: Hang) -> dict[str, object]:
    record = msgspec.structs.asdict(hang.record)
    del record["failed"]
    return {
        **record,
        "sentence": hang.record.sentence,
        "fix": hang_kind(hang.record.kind).fix_of(hang.record.unit),
        "ended": hang.end is not None,
        "ended_after_ns": None if hang.end is None else hang.end - hang.start,
        "went_on": hang.went_on,
        "outcome": hang.outcome,
        "recorded_by": hang.ranks,
    }


class LastStep(msgspec.Struct, frozen=True):
    """The last whole step of one model; ``wall_ns``: when it was done, since the Unix epoch."""

    model: str
    step: int
    wall_ns: int | None


class RankEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one rank's files.

    ``closed``: whether the writer ended in order; if not, the process was killed, or still runs.
    """

    rank: int
    host: str | None
    last: tuple[LastStep, ...]
    closed: bool


def document(
    run: Run, found: Sequence[Hang], now_ns: int, *, stacks: bool = False
) -> Iterator[Node]:
    """Yield what is known of the hangs of a run; ``now_ns``: since the Unix epoch.

    ``stacks``: with those of each rank, and the files where ranks have left all that they knew.
    """
    ends = rank_ends(run)
    for i, one in enumerate(found):
        yield Heading(one.record.sentence) if i else Text(one.record.sentence, "strong")
        rows = [*hang_rows(one, ends, now_ns)]
        if stacks:
            rows += [("dump", str(path)) for path in _dumps(run, one)]
            rows += [] if one.record.stacks else [("stacks", "none are recorded")]
        yield Pairs(rows)
        for stack in one.record.stacks if stacks else ():
            yield Text(f"rank {stack.rank} (pid {stack.pid} on {stack.host}, {stack.state})")
            yield Code(stack.text.splitlines())
    if not found:
        is_apart, is_open = are_apart(ends), any(not end.closed for end in ends)
        said = ", but its ranks' files end apart" if is_apart and is_open else ""
        yield Text(f"no hang is recorded in this run{said}", "strong")
        if is_apart or is_open:
            furthest_last = sorted(ends, key=lambda end: [one.step for one in end.last])
            yield Pairs([(f"rank {end.rank}", _end(end)) for end in furthest_last])
    if lacking := [*missing_of_run(run)]:
        yield Items(lacking, "warn")


def _dumps(run: Run, hang: Hang) -> list[Path]:
    """Return the files that ``on_hang="dump"`` left beside the records, not those of older runs."""
    pattern = f"hang{hang.record.hang:03}-rank*.txt"
    folders = sorted({Path(path).parent for track in run.tracks for path in track.paths})
    found = (path for folder in folders for path in folder.glob(pattern))
    return sorted(p for p in found if p.stat().st_mtime_ns >= hang.record.since_wall_ns)


def hang_rows(hang: Hang, ends: Sequence[RankEnd], now_ns: int) -> Iterator[tuple[str, str]]:
    """Yield what is known of a hang, but for its sentence.

    The sentence has how long it had lasted when it was told, and ``by now`` how long until now.
    """
    record, kind = hang.record, hang_kind(hang.record.kind)
    # No end is known, and a file is open: it may go on at this moment.
    if hang.end is None and any(e.rank in hang.ranks and not e.closed for e in ends):
        by_now = max(0, now_ns - record.since_wall_ns) / 1e9
        yield "by now", f"{by_now:,.0f} s, unless its processes were killed meanwhile"
    where = [record.model, record.hook, f"step {record.step}"]
    where += [called(record.bucket, record.unit)] if record.bucket >= 0 else []
    yield "what", f"{kind.sentence} ({record.kind})"
    yield "where", ", ".join(filter(None, where))
    yield "waits", named_ranks(record.waiting) if record.waiting else "nobody known"
    yield "for", named_ranks(record.ranks) if record.ranks else "not known"
    yield "since", _time(record.since_wall_ns)
    yield "ended", hang.outcome
    if fix := kind.fix_of(record.unit):
        yield "fix", fix
    yield "docs", record.docs
    yield "recorded", f"in the file{'s' * (len(hang.ranks) != 1)} of {named_ranks(hang.ranks)}"
    for end in ends:
        if end.rank not in hang.ranks:
            yield f"rank {end.rank}", f"its file does not have it; {_end(end)}"


def _end(end: RankEnd) -> str:
    steps = [
        f"{one.step} of {one.model}" + ("" if one.wall_ns is None else f", {_time(one.wall_ns)}")
        for one in end.last
    ]
    no_end = "has no end: the process was killed, or it still runs"
    last = ", ".join(steps) or "no whole step"
    return f"last whole step: {last}; the file {'was closed' if end.closed else no_end}"


def _time(wall_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(wall_ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):  # a damaged file's
        return "a time that is none"
    return moment.isoformat(" ", "milliseconds").replace("+00:00", " UTC")


def rank_ends(run: Run) -> list[RankEnd]:
    """Return where each rank's files end."""
    return [
        RankEnd(rank=t.rank, host=t.host, last=tuple(_last_steps(t)), closed=t.records.closed)
        for t in run.tracks
    ]


def _last_steps(track: RankTrack) -> Iterator[LastStep]:
    run, steps = track.records.run, track.steps
    for model in dict.fromkeys(name for name, _ in track.models):
        whole = np.flatnonzero(track.is_of(steps, model) & ~steps.having("incomplete"))
        if len(whole):
            at = whole[steps.step[whole].argmax()]
            wall = None if run is None else run.wall_ns(int(steps.done[at]))
            yield LastStep(model, int(steps.step[at]), wall)


def are_apart(ends: Sequence[RankEnd]) -> bool:
    """Return whether the last whole steps of a model differ, or a rank has none of any."""
    last = {(one.model, one.step) for end in ends for one in end.last}
    has_none = bool(last) and not all(end.last for end in ends)
    return has_none or len(last) > len({model for model, _ in last})
