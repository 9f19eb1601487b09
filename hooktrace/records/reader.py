"""Record files to records: nothing in a file, and no file, makes reading a rank's fail.

    file --read_blocks--> whole lines --RecordReader--> RankRecords
                                           +-- cannot be read: named by its number, skipped

A line that is damaged takes no other with it; buckets whose shared line is the damaged one are
read without their sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import msgspec

from .bucket import AssignmentRecord
from .codec import UNREADABLE, Line, decode_line, decode_lines
from .content import LISTS, RankRecords, SkippedLine, joined
from .files import open_regular
from .lines import BucketsLine, Losses, Shared, SharedLine
from .run import SCHEMA_VERSION, RunInfo
from .step import StepRecord

LONGEST_LINE = 64 << 20
"""Bytes.  A line of another tool may be gigabytes, which must not get into memory."""

_BLOCK = 1 << 18
"""Bytes: a thousand lines, so that what a block costs does not count."""


def read_blocks(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines; of one longer than hooktrace's only the beginning.

    Raises ``OSError`` for a file that cannot be opened or read.
    """
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            rest = file.readline(LONGEST_LINE)
            yield block + rest
            while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_LINE)


def read_parts(
    paths: Sequence[str | os.PathLike[str]],
    reader: Callable[[RunInfo | None], RecordReader] | None = None,
) -> RankRecords:
    """Read the parts of one rank's run, oldest first, as ``find_records`` gives them.

    Lines that cannot be read are skipped and named in ``skipped``, with their part where there are
    several; of a file that cannot be opened or read line 0 is named.

    ``reader``: makes what reads a part, given the run that the parts before it tell.
    """
    parts: list[RankRecords] = []
    for path in paths:
        run = next((part.run for part in parts if part.run is not None), None)
        one = (reader or RecordReader)(run)
        try:
            for block in read_blocks(path):
                one.feed(block)
        except OSError as error:
            parts.append(one.content())
            parts[-1].closed = False
            parts[-1].skip(0, f"{error.strerror or error}; put a file there that you may read")
        else:
            parts.append(one.content())
    return joined(parts, [os.path.basename(path) for path in paths])


TakeBuckets = Callable[[Sequence[BucketsLine], Shared], None]


class RecordReader:
    """Reads the lines of one file, in portions if it still grows.

    ``run``: of the parts before this one; a part of another run is not read.

    ``buckets``, ``steps``: take these, in place of the lists, for a reader that has no use for a
    million records.
    """

    def __init__(
        self,
        run: RunInfo | None = None,
        *,
        buckets: TakeBuckets | None = None,
        steps: Callable[[Sequence[StepRecord]], None] | None = None,
    ) -> None:
        self._records = records = RankRecords(run=run)
        self._shared: dict[int, SharedLine] = {}
        self._take_buckets = buckets or self._keep_buckets
        self._take_steps = steps or records.steps.extend
        self._take: dict[type, Callable[[Any], None]] = {
            RunInfo: self._run,
            Losses: self._losses,
            **{kind: getattr(records, name).append for kind, name in LISTS.items()},
        }
        self._number = 0
        self._stopped = False
        self._is_ours = run is not None

    def feed(self, block: bytes) -> None:
        """Read the next whole lines, some 100 kB of them at best."""
        if self._stopped:
            return
        is_one = block.find(b"\n") in {-1, len(block) - 1}
        try:
            self._take_lines([decode_line(block)] if is_one else decode_lines(block))
        except (*UNREADABLE, ValueError) as error:
            if not is_one:
                half = len(block) // 2
                at = block.find(b"\n", half, -1) + 1 or block.rfind(b"\n", 0, half) + 1
                self.feed(block[:at])
                self.feed(block[at:])
                return
            self._number += 1
            self._skip(block, error)
        else:
            self._number += block.count(b"\n")

    def _take_lines(self, lines: list[Line]) -> None:
        """Take what lines say; raises before it takes any."""
        if not lines:
            return
        if type(lines[0]) is RunInfo:
            self._run(lines[0])
        buckets = [line for line in lines if type(line) is BucketsLine]
        rest = [line for line in lines if type(line) is not BucketsLine]
        steps = [line for line in rest if type(line) is StepRecord]
        self._shared |= {line.number: line for line in rest if type(line) is SharedLine}
        others = [line for line in rest if type(line) not in {StepRecord, SharedLine}]
        for line in others:
            if type(line) is RunInfo and line is not lines[0]:
                raise ValueError("what follows may be another run's")
            if type(line) is AssignmentRecord and max(_elements(line), default=0) > _MOST_ELEMENTS:
                raise ValueError("a parameter has more elements than any memory holds")
        for line in buckets:
            line.check()
        if buckets:
            self._take_buckets(buckets, self._shared)
        if steps:
            self._take_steps(steps)
        for line in others:
            self._take[type(line)](line)
        self._is_ours = True
        self._records.closed &= type(lines[-1]) is Losses

    def content(self) -> RankRecords:
        """Return what was read so far; one sentence says that a file is another tool's."""
        records = self._records
        if records.skipped and not self._is_ours:
            return replace(records, skipped=[SkippedLine(1, _FOREIGN)], unnamed=0)
        return records

    def _keep_buckets(self, lines: Sequence[BucketsLine], shared: Shared) -> None:
        self._records.buckets += [one for line in lines for one in line.records(shared)]

    def _run(self, run: RunInfo) -> None:
        if run.schema != SCHEMA_VERSION:
            raise StopReadingError(_other_schema(run.schema))
        if self._records.run not in (None, run):
            raise StopReadingError("a second run begins here; keep each rank's file on its own")
        self._records.run = run

    def _losses(self, line: Losses) -> None:
        records = self._records
        records.lost, records.left_out, records.removed = line.lost, line.left_out, line.removed
        records.closed = line.closed

    def _skip(self, raw: bytes, error: Exception) -> None:
        """Name a line that cannot be read; after some none may be read either."""
        if raw.isspace():
            return
        schema = _schema_of(raw)
        if schema not in (None, SCHEMA_VERSION):
            error = StopReadingError(_other_schema(schema))
        if isinstance(error, StopReadingError):
            self._stopped = self._is_ours = True
            reason = f"{error}; nothing from here on was read"
        else:
            reason = _reason_of(raw, error)
        self._is_ours |= raw.startswith(_BEGINNING) or _BEGINNING.startswith(raw)
        self._records.skip(self._number, reason)
        self._records.closed = False


_MOST_ELEMENTS = 1 << 53


def _elements(layout: AssignmentRecord) -> Iterator[int]:
    return (prod(one.shape) for bucket in layout.buckets for one in bucket.parameters)


class StopReadingError(ValueError):
    """From this line on nothing may be read as records of this run and schema."""


class _Schema(msgspec.Struct, tag_field="kind", tag="run"):
    """What the run line of any version says."""

    schema: int


def _schema_of(raw: bytes) -> int | None:
    """Return the schema version that a run's line of any version says; ``None`` for other lines."""
    try:
        return msgspec.json.decode(raw, type=_Schema).schema
    except UNREADABLE:
        return None


def _other_schema(schema: object) -> str:
    """Return the sentence about a file of another schema version."""
    return (
        f"the file has schema version {str(schema)[:20]} and this hooktrace reads "
        f"{SCHEMA_VERSION}; use the version of hooktrace that wrote it"
    )


_BEGINNING = b'{"kind":"'
"""By which a line that cannot be read, or the cut-off end of a file, is still known as ours."""
_FOREIGN = (
    "the file is no record file of hooktrace: no line of it is a record of hooktrace; pass a "
    "rank<NNNNN>.jsonl that RecordFileExporter wrote"
)
_LONGEST_REASON = 300


def _reason_of(raw: bytes, error: Exception) -> str:
    """Return why a line cannot be read."""
    if len(raw) >= LONGEST_LINE:
        return "the line is longer than any that hooktrace writes"
    if not raw.endswith(b"\n"):
        return "the line is cut off: the file ends in the middle of it"
    reason = str(error) or type(error).__name__
    if type(error) in UNREADABLE:
        reason = f"not JSON: {reason}"
    return reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."
