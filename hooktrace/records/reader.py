"""Record files to records: nothing in a file makes reading it fail.

    file --read_lines--> lines --RecordReader--> RankRecords
                                   +-- cannot be read: named by its number, skipped

A line that is damaged takes no other with it; buckets whose layout is the damaged line are read
without their sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from .anomaly import AnomalyRecord
from .codec import UNREADABLE, Line, decode_line, decode_lines
from .content import RankRecords, SkippedLine
from .damage import (
    HEAD_BYTES,
    LONGEST_LINE,
    foreign,
    is_like_ours,
    other_schema,
    reason_of,
    schema_of,
)
from .layout import LayoutRecord
from .lines import BucketFacts, BucketLine, Losses, RunLine, layout_facts
from .run import SCHEMA_VERSION, ClockRecord, RunInfo
from .skew import SkewRecord
from .step import StepRecord


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield a file's lines; of one that is longer than any of hooktrace's only the beginning.

    Raises ``OSError`` for a file that cannot be opened or read.
    """
    with open(path, "rb") as file:
        while line := file.readline(LONGEST_LINE):
            yield line
            while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE)


def read_records(path: str | os.PathLike[str]) -> RankRecords:
    """Read one record file: the whole of a run that has one part.

    Lines that cannot be read are skipped and named in ``skipped``; only a file that cannot be
    opened or read raises (``OSError``).
    """
    return decode_records(read_lines(path))


def read_parts(paths: Sequence[str | os.PathLike[str]]) -> RankRecords:
    """Read the parts of one rank's run, oldest first, as ``find_records`` gives them.

    As ``read_records``; what was skipped in which part is said where there are several.
    """
    whole = RankRecords()
    for path in paths:
        reader = RecordReader(run=whole.run)
        reader.feed(read_lines(path))
        whole.join(reader.content(), os.path.basename(path) if len(paths) > 1 else None)
    return whole


def decode_records(lines: Iterable[bytes]) -> RankRecords:
    """Do what ``read_records`` does, for lines from anywhere."""
    reader = RecordReader()
    reader.feed(lines)
    return reader.content()


TakeBuckets = Callable[[Sequence[BucketLine], Callable[[BucketLine], BucketFacts]], None]


class RecordReader:
    """Reads the lines of one file, in portions if it still grows.

    ``run``: of the parts before this one; a part of another run is not read.

    ``buckets``, ``step``: take these, in place of the lists, for a reader that has no use for a
    million records.  Buckets come several at once, with a function that tells what the layout says
    of each; a ``ValueError`` raised before any is kept skips the line that it is about.
    """

    def __init__(
        self,
        *,
        run: RunInfo | None = None,
        buckets: TakeBuckets | None = None,
        step: Callable[[StepRecord], None] | None = None,
    ) -> None:
        self._records = records = RankRecords(run=run)
        self._facts: dict[tuple[str, int], dict[int, BucketFacts]] = {}
        self._take_buckets = buckets or self._keep_buckets
        self._take: dict[type, Callable[[Any], None]] = {
            BucketLine: lambda line: self._take_buckets([line], self._facts_of),
            StepRecord: step or records.steps.append,
            RunLine: self._run,
            LayoutRecord: self._layout,
            AnomalyRecord: records.anomalies.append,
            ClockRecord: records.clocks.append,
            SkewRecord: records.skews.append,
            Losses: self._losses,
        }
        self._number = 0
        self._stopped = False
        self._is_ours = run is not None
        self._head = b""

    def feed(self, lines: Iterable[bytes]) -> None:
        """Read the next lines; of a growing file whole ones only."""
        if self._stopped:
            return
        records, take = self._records, self._take
        for number, raw in enumerate(lines, self._number + 1):
            self._number = number
            try:
                line = decode_line(raw)
                records.closed = False
                take[type(line)](line)
                self._is_ours = True
            except StopReadingError as error:
                self._stop(error)
                return
            except (*UNREADABLE, ValueError) as error:
                if raw.isspace():
                    continue
                if self._skip(raw, error):
                    return

    def feed_block(self, block: bytes) -> None:
        """Do what ``feed`` does for the lines of a block of some 100 kB, in a third of the time."""
        if not self._number:  # the first line tells whether others may be read
            first, newline, block = block.partition(b"\n")
            self.feed([first + newline])
        if self._stopped or not block:
            return
        try:
            others = self._feed_buckets(decode_lines(block))
        except (*UNREADABLE, ValueError):
            # In halves, until the line that cannot be read is alone.
            cut = block.find(b"\n", len(block) // 2) + 1
            if cut in {0, len(block)}:
                cut = block.rfind(b"\n", 0, -1) + 1
            if not cut:
                self.feed([block])
                return
            self.feed_block(block[:cut])
            self.feed_block(block[cut:])
            return
        for line in others:
            self._take[type(line)](line)
        self._number += block.count(b"\n")

    def _feed_buckets(self, lines: list[Line]) -> list[Line]:
        """Take the buckets, and return the lines of other kinds; raises before it takes any."""
        others = [line for line in lines if type(line) is not BucketLine]
        for line in others:
            if type(line) is RunLine:
                raise ValueError("what follows may be another run's")
            if type(line) is LayoutRecord:
                self._facts[line.model, line.generation] = layout_facts(line)
        buckets = [line for line in lines if type(line) is BucketLine]
        if buckets:
            self._take_buckets(buckets, self._facts_of)
        self._is_ours |= bool(lines)
        self._records.closed &= not lines or type(lines[-1]) is Losses
        return others

    def content(self) -> RankRecords:
        """Return what was read so far; of a file of another tool one sentence says so."""
        records = self._records
        if records.skipped and not self._is_ours:
            return replace(records, skipped=[SkippedLine(1, foreign(self._head))], unnamed=0)
        return records

    def _facts_of(self, line: BucketLine) -> BucketFacts:
        return line.facts(self._facts.get((line.model, line.generation), {}).get(line.bucket))

    def _keep_buckets(
        self, lines: Sequence[BucketLine], facts_of: Callable[[BucketLine], BucketFacts]
    ) -> None:
        self._records.buckets += [line.record(facts_of(line)) for line in lines]

    def _layout(self, line: LayoutRecord) -> None:
        self._records.layouts.append(line)
        self._facts[line.model, line.generation] = layout_facts(line)

    def _run(self, line: RunLine) -> None:
        if line.schema != SCHEMA_VERSION:
            raise StopReadingError(other_schema(line.schema))
        run = line.record()
        if self._records.run not in (None, run):
            raise StopReadingError("a second run begins here; keep each rank's file on its own")
        self._records.run = run

    def _losses(self, line: Losses) -> None:
        records = self._records
        records.lost, records.left_out, records.removed = line.lost, line.left_out, line.removed
        records.closed = line.closed

    def _skip(self, raw: bytes, error: Exception) -> bool:
        """Name a line that cannot be read; returns whether nothing after it may be read either."""
        self._records.closed = False
        if len(self._head) <= HEAD_BYTES:
            self._head += raw[:HEAD_BYTES]
        schema = schema_of(raw)
        if schema not in (None, SCHEMA_VERSION):
            self._stop(StopReadingError(other_schema(schema)))
            return True
        self._records.skip(self._number, reason_of(raw, error))
        self._is_ours |= is_like_ours(raw)
        return False

    def _stop(self, error: StopReadingError) -> None:
        self._records.skip(self._number, f"{error}; nothing from here on was read")
        self._stopped = self._is_ours = True


class StopReadingError(ValueError):
    """From this line on nothing may be read as records of this run and schema."""
