"""What ``hooktrace hang`` says, in lines: each hang, its sentence first, or how far each rank came.

Hang, RankEnds --hang_lines--> the sentence, who waits for whom, since when, what to do
RankEnds --end_lines--> what the files say where no hang was recorded
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ...records.hang import called, hang_kind
from ...records.units import named_ranks
from ..timeline import Hang, Unread
from .ends import Behind, EarlierHang, LastStep, RankEnd

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
