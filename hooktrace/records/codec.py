"""Records to lines of a record file, and lines to records.

    records --RecordEncoder--> {"kind":"run","schema":2,...}
                               {"kind":"layout",...}          what a generation's buckets share
                               {"kind":"bucket",...}          the rest of each call
                               {"kind":"step",...}            after its buckets
                               {"kind":"losses","closed":true}
    file --read_lines--> lines --RecordReader--> RankRecords
                                   +-- cannot be read: named by its number, skipped

One JSON object a line, ASCII or UTF-8, and nothing else in the file; fields that have their default
are left out.  NaN and infinities are null (``ErrorRecord`` says how they come back).  A part of a
run is a file of its own: it begins with the run, and repeats the layouts and the clock that hold.

Nothing in a file makes reading it fail, and a line that is damaged takes no other with it; buckets
whose layout is the damaged line are read without their sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from .anomaly import AnomalyRecord
from .bucket import BucketRecord
from .content import RankRecords, SkippedLine
from .layout import LayoutRecord
from .lines import BucketFacts, BucketLine, Losses, RunLine, layout_facts
from .run import SCHEMA_VERSION, ClockRecord, RunInfo
from .skew import SkewRecord
from .step import StepRecord

__all__ = [
    "LONGEST_LINE",
    "Line",
    "RecordEncoder",
    "RecordReader",
    "decode_line",
    "decode_records",
    "read_lines",
    "read_parts",
    "read_records",
]

Line = (
    BucketLine
    | StepRecord
    | RunLine
    | LayoutRecord
    | AnomalyRecord
    | ClockRecord
    | SkewRecord
    | Losses
)
"""What a line may be, told apart by its ``kind``."""

_decoder = msgspec.json.Decoder(Line)
decode_line: Callable[[bytes], Line] = _decoder.decode
"""Return what one line says; raises one of ``UNREADABLE`` for a line that is none of ours."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
"""What reading a damaged line may raise."""

_MOST_MODELS = 64
"""Models whose layouts are remembered; buckets of others say everything themselves."""

_encode = msgspec.json.Encoder().encode
_Counts = Mapping[str, int]
_NONE: _Counts = MappingProxyType({})


class RecordEncoder:
    """Turns the records of one file into its lines; remembers the layouts that stand in it."""

    def __init__(self) -> None:
        self._facts: dict[str, tuple[int, dict[int, BucketFacts]]] = {}

    def record(
        self, record: RunInfo | LayoutRecord | StepRecord | AnomalyRecord | ClockRecord | SkewRecord
    ) -> bytes:
        """Return the line of a record that is not a bucket."""
        if isinstance(record, RunInfo):
            return _line(RunLine.of(record))
        if isinstance(record, LayoutRecord):
            self._facts.pop(record.model, None)
            self._facts[record.model] = record.generation, layout_facts(record)
            if len(self._facts) > _MOST_MODELS:
                del self._facts[next(iter(self._facts))]
        return _line(record)

    def buckets(self, records: Iterable[BucketRecord]) -> bytes:
        """Return the lines of buckets, without what the last layout of their model says."""
        return b"".join([_line(BucketLine.of(r, self._said(r))) for r in records])

    def forget(self, model: str) -> None:
        """Take it that the model's layout does not stand in the file after all."""
        self._facts.pop(model, None)

    def losses(
        self,
        lost: _Counts,
        left_out: _Counts = _NONE,
        removed: _Counts = _NONE,
        *,
        closed: bool = False,
    ) -> bytes:
        """Return the line that counts what is not in the files, by kind (``Losses``)."""
        counts = Losses(
            lost=dict(lost), left_out=dict(left_out), removed=dict(removed), closed=closed
        )
        return _line(counts)

    def _said(self, record: BucketRecord) -> BucketFacts | None:
        generation, facts = self._facts.get(record.model, (None, {}))
        return facts.get(record.bucket) if generation == record.generation else None


def _line(record: msgspec.Struct) -> bytes:
    try:
        return _encode(record) + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, as in a file name of no encoding
        return _encode(_in_utf8(msgspec.to_builtins(record))) + b"\n"


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(one) for key, one in value.items()}
    return [_in_utf8(one) for one in value] if isinstance(value, list | tuple) else value


LONGEST_LINE = 64 << 20
"""Bytes.  A line of another tool may be gigabytes, which must not get into memory."""


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
            except _StopReadingError as error:
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
            others = self._feed_buckets(_decoder.decode_lines(block))
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
            return replace(records, skipped=[SkippedLine(1, _foreign(self._head))], unnamed=0)
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
            raise _StopReadingError(_other_schema(line.schema))
        run = line.record()
        if self._records.run not in (None, run):
            raise _StopReadingError("a second run begins here; keep each rank's file on its own")
        self._records.run = run

    def _losses(self, line: Losses) -> None:
        records = self._records
        records.lost, records.left_out, records.removed = line.lost, line.left_out, line.removed
        records.closed = line.closed

    def _skip(self, raw: bytes, error: Exception) -> bool:
        """Name a line that cannot be read; returns whether nothing after it may be read either."""
        self._records.closed = False
        if len(self._head) <= _HEAD:
            self._head += raw[:_HEAD]
        schema = _schema_of(raw)
        if schema not in (None, SCHEMA_VERSION):
            self._stop(_StopReadingError(_other_schema(schema)))
            return True
        self._records.skip(self._number, _reason(raw, error))
        self._is_ours |= _is_like_ours(raw)
        return False

    def _stop(self, error: _StopReadingError) -> None:
        self._records.skip(self._number, f"{error}; nothing from here on was read")
        self._stopped = self._is_ours = True


class _StopReadingError(ValueError):
    """From this line on nothing may be read as records of this run and schema."""


class _Schema(msgspec.Struct, tag_field="kind", tag="run"):
    """What the run line of any version says."""

    schema: int


def _schema_of(raw: bytes) -> int | None:
    try:
        return msgspec.json.decode(raw, type=_Schema).schema
    except UNREADABLE:
        return None


def _other_schema(schema: object) -> str:
    return (
        f"the file has schema version {str(schema)[:20]} and this hooktrace reads "
        f"{SCHEMA_VERSION}; use the version of hooktrace that wrote it"
    )


_HEAD = 200
"""Bytes by which a file of another tool is known."""
_LONGEST_REASON = 300
_BEGINNINGS = tuple(
    f'{{"kind":"{kind}"'.encode()
    for kind in ("run", "layout", "bucket", "step", "clock", "skew", "anomaly", "losses")
)
"""By which a line that cannot be read is still known as ours."""


def _is_like_ours(raw: bytes) -> bool:
    """Return whether a line that cannot be read, or the cut-off end of a file, was one of ours."""
    is_cut = not raw.endswith(b"\n")
    return any(raw.startswith(b) or (is_cut and b.startswith(raw)) for b in _BEGINNINGS)


def _reason(raw: bytes, error: Exception) -> str:
    if len(raw) >= LONGEST_LINE:
        return "the line is longer than any that hooktrace writes"
    if not raw.endswith(b"\n"):
        return "the line is cut off: the file ends in the middle of it"
    reason = str(error) or type(error).__name__
    if type(error) in UNREADABLE:
        reason = f"not JSON: {reason}"
    return reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."


def _foreign(head: bytes) -> str:
    """Return the sentence about a file in which no line is ours; ``head`` is its beginning."""
    what = "no line of it is a record of hooktrace"
    remedy = "pass a rank<NNNNN>.jsonl that RecordFileExporter wrote"
    if b'"hooktrace_run"' in head:
        what = "it is a trace file of hooktrace before 0.1"
        remedy = "open it in Perfetto as it is, or record the run again"
    elif head.startswith(b"\x1f\x8b"):
        what, remedy = "it is compressed by gzip", "unpack it, if one is inside"
    elif b'"traceEvents"' in head or b'"ph"' in head:
        what = "its lines are events for Perfetto"
    return f"the file is no record file of hooktrace: {what}; {remedy}"
