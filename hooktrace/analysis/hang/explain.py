"""What ``hooktrace hang`` says, in lines: each hang, its sentence first, or how far each rank came.

Hang, RankEnds --hang_lines--> the sentence, who waits for whom, since when, what to do
RankEnds --end_lines--> what the files say where no hang was recorded
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from ...records import HangRecord
from ...records.codec import UNREADABLE, decode_line
from ...records.files import ranks_files
from ...records.hang import called, hang_kind
from ...records.reader import read_blocks
from ...records.units import named_ranks
from ..run import Hang, RankTrack, Run, Unread


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


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A model of which ``ranks`` ended after step ``step`` and others after ``furthest``.

    ``step`` is ``None`` of ranks without a whole step of any model.
    """

    model: str
    ranks: tuple[int, ...]
    step: int | None
    furthest: int


def rank_ends(run: Run) -> list[RankEnd]:
    """Return where each rank's files end."""
    return [
        RankEnd(
            rank=track.rank,
            host=None if track.records.run is None else track.records.run.host,
            last=tuple(_last_steps(track)),
            closed=track.records.closed,
        )
        for track in run.tracks
    ]


def _last_steps(track: RankTrack) -> Iterator[LastStep]:
    run, steps = track.records.run, track.steps
    for model in dict.fromkeys(name for name, _ in track.models):
        whole = np.flatnonzero(track.is_of(steps, model) & ~steps.having("incomplete"))
        if len(whole):
            at = whole[steps.step[whole].argmax()]
            wall = None if run is None else run.wall_ns(int(steps.done[at]))
            yield LastStep(model, int(steps.step[at]), wall)


def behind(ends: Sequence[RankEnd]) -> list[Behind]:
    """Return who is behind the rank that came furthest, the furthest behind first."""
    steps: dict[str, dict[int, list[int]]] = {}
    for end in ends:
        for last in end.last:
            steps.setdefault(last.model, {}).setdefault(last.step, []).append(end.rank)
    nowhere = tuple(end.rank for end in ends if not end.last)
    found = [
        Behind(model=model, ranks=nowhere, step=None, furthest=max(by_step))
        for model, by_step in list(steps.items())[: len(nowhere) and 1]
    ]
    return found + [
        Behind(model=model, ranks=tuple(by_step[step]), step=step, furthest=max(by_step))
        for model, by_step in steps.items()
        for step in sorted(by_step)[:-1]
    ]


_BEGINNING = b'{"kind":"hang"'


class EarlierHang(msgspec.Struct, frozen=True):
    """What an older run's file says of its last hang; ``over``: that it was over too."""

    file: str
    sentence: str
    since_wall_ns: int
    over: bool


def earlier_hangs(folder: Path) -> list[EarlierHang]:
    """Return the last hang of each older run in a folder, the newest run first.

    Of each run the lowest rank's files are read: every rank gets the record.  What cannot be read
    says nothing.
    """
    older: dict[int, dict[int, list[Path]]] = {}
    for name, path in ranks_files(folder):
        if name.age:
            older.setdefault(name.age, {}).setdefault(name.rank, []).append(path)
    found = [_last_of(ranks[min(ranks)]) for _, ranks in sorted(older.items())]
    return [one for one in found if one is not None]


def _last_of(paths: list[Path]) -> EarlierHang | None:
    records = [(path, record) for path in paths for record in _hangs_in(path)]
    if not records:
        return None
    path, last = records[-1]
    over = last.ended_after_ns is not None
    said = next((r for _, r in reversed(records) if r.ended_after_ns is None), last)
    remedy = hang_kind(said.kind).remedy_of(said.unit)
    sentence = said.message.partition("\n")[0].removesuffix(f"; {remedy}")
    return EarlierHang(path.name, sentence, said.since_wall_ns, over)


def _hangs_in(path: Path) -> list[HangRecord]:
    found = []
    with suppress(OSError):
        for block in read_blocks(path):
            for line in block.splitlines() if _BEGINNING in block else ():
                if line.startswith(_BEGINNING):
                    with suppress(*UNREADABLE, ValueError):
                        found.append(decode_line(line))
    return [record for record in found if isinstance(record, HangRecord)]


_NOT_CLOSED = "has no end: the process was killed, or it still runs"


def hang_lines(
    hang: Hang, ends: Sequence[RankEnd], now_ns: int, *, stacks: bool = False
) -> Iterator[str]:
    """Yield what is known of a hang; ``stacks``: with those of each rank.

    ``now_ns``: since the Unix epoch.  The sentence has how long it had lasted when it was told.
    """
    record, kind = hang.record, hang_kind(hang.record.kind)
    yield hang.sentence
    if may_last(hang, ends):
        by_now = max(0, now_ns - record.since_wall_ns)
        yield _row("by now", f"{_seconds(by_now)}, unless its processes were killed meanwhile")
    where = [record.model, record.hook, f"step {record.step}"]
    where += [called(record.bucket, record.unit)] if record.bucket >= 0 else []
    yield _row("what", f"{kind.sentence} ({record.kind})")
    yield _row("where", ", ".join(filter(None, where)))
    yield _row("waits", named_ranks(record.waiting) if record.waiting else "nobody known")
    yield _row("for", named_ranks(record.ranks) if record.ranks else "not known")
    yield _row("since", _time(record.since_wall_ns))
    yield _row("ended", hang.outcome)
    if remedy := kind.remedy_of(record.unit):
        yield _row("remedy", remedy)
    yield _row("recorded", f"in the {_files(hang.ranks)}")
    for end in ends:
        if end.rank not in hang.ranks:
            yield _row(f"rank {end.rank}", f"its file does not have it; {_end(end)}")
    if stacks:
        yield from _stack_lines(hang)


def may_last(hang: Hang, ends: Sequence[RankEnd]) -> bool:
    """Return whether a hang may go on at this moment: no end is known, and a file is open."""
    return hang.end is None and any(e.rank in hang.ranks and not e.closed for e in ends)


def end_lines(ends: Sequence[RankEnd], late: Sequence[Behind]) -> Iterator[str]:
    """Yield what the files say of a run in which no hang was recorded."""
    is_open = [end.rank for end in ends if not end.closed]
    if late and is_open:
        apart = "; ".join(map(_behind, late))
        yield f"no hang is recorded in this run, but its ranks' files end apart: {apart}"
    else:
        yield "no hang is recorded in this run"
    if late or is_open:
        for end in ends:
            yield _row(f"rank {end.rank}", _end(end))


def dump_lines(dumps: Sequence[Path]) -> Iterator[str]:
    """Yield where ranks have left all that they knew."""
    for path in dumps:
        yield _row("dump", str(path))


def earlier_lines(found: Sequence[EarlierHang]) -> Iterator[str]:
    """Yield what runs before this one, in the same directory, hung in."""
    for one in found:
        over = "; it is over" if one.over else ""
        yield _row("earlier", f"{_time(one.since_wall_ns)}, {one.file}: {one.sentence}{over}")


def missing_lines(
    present: Collection[int],
    others: Collection[int],
    world_size: int,
    unread: Collection[Unread] = (),
) -> Iterator[str]:
    """Yield which ranks have no file, or an ``unread`` one, and ``others``, of an earlier run."""
    if absent := set(range(world_size)) - {*present, *others, *(one.rank for one in unread)}:
        yield _row("no file", f"of {named_ranks(absent)}; the run has {world_size} ranks")
    if others:
        yield _row("left out", f"the {_files(others)}, of an earlier run")
    for one in unread:
        yield _row("not read", f"{one.file}: {one.why}")


def _behind(one: Behind) -> str:
    own = "without a whole step" if one.step is None else f"with step {one.step}"
    return f"{named_ranks(one.ranks)} {own}, others with step {one.furthest} of {one.model}"


def _end(end: RankEnd) -> str:
    last = ", ".join(map(_last, end.last)) or "no whole step"
    return f"last whole step: {last}; the file " + ("was closed" if end.closed else _NOT_CLOSED)


def _last(last: LastStep) -> str:
    at = "" if last.wall_ns is None else f", {_time(last.wall_ns)}"
    return f"{last.step} of {last.model}{at}"


def _files(of: Collection[int]) -> str:
    return f"file{'' if len(of) == 1 else 's'} of {named_ranks(of)}"


def _stack_lines(hang: Hang) -> Iterator[str]:
    if not hang.record.stacks:
        yield _row("stacks", "none are recorded")
    for one in hang.record.stacks:
        yield f"  rank {one.rank} (pid {one.pid} on {one.host}, {one.state})"
        yield from (f"    {line}" for line in one.text.splitlines())


def _row(name: str, text: str) -> str:
    return f"  {name:<9} {text}"


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.0f} s"


def _time(wall_ns: int) -> str:
    try:
        moment = datetime.fromtimestamp(wall_ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):  # a damaged file's
        return "a time that is none"
    return moment.isoformat(" ", "milliseconds").replace("+00:00", " UTC")
