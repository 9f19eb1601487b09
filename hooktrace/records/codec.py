"""Records to lines of a record file, and lines to records.

    records --RecordEncoder--> {"kind":"run","schema":4,...}
                               {"kind":"layout",...}          what a generation's buckets share
                               {"kind":"sends",...}           what the stages of many calls share
                               {"kind":"bucket",...}          the rest of each call
                               {"kind":"step",...}            after its buckets
                               {"kind":"losses","closed":true}
    lines --decode_line--> records and ``lines``; whole files are read by ``reader``

One JSON object a line, ASCII or UTF-8, and nothing else in the file; fields that have their default
are left out.  NaN and infinities are null (``ErrorRecord`` says how they come back).  A part of a
run is a file of its own: it begins with the run, and repeats the layouts and the clock that hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from .base import Record
from .bucket import BucketRecord, LayoutRecord
from .content import ListedRecord
from .last_used import Bounded
from .lines import (
    BucketFacts,
    BucketLine,
    Losses,
    RunLine,
    SendsLine,
    StageWriter,
    layout_facts,
)
from .run import RunInfo
from .step import StepRecord

Line = BucketLine | StepRecord | RunLine | ListedRecord | SendsLine | Losses
"""What a line may be, told apart by its ``kind``."""

_decoder = msgspec.json.Decoder(Line)
decode_line: Callable[[bytes], Line] = _decoder.decode
"""Return what one line says; raises one of ``UNREADABLE`` for a line that is none of ours."""

decode_lines: Callable[[bytes], list[Line]] = _decoder.decode_lines
"""Do the same for a block of whole lines."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
"""What reading a damaged line may raise."""

_MOST_LAYOUTS = 64
"""Layouts that are remembered, the last ones; buckets of others say everything themselves."""

_encoder = msgspec.json.Encoder()
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


class RecordEncoder:
    """Turns the records of one file into its lines; remembers the layouts that stand in it."""

    def __init__(self) -> None:
        # By model and generation: buckets of a generation may come after the layout of the next.
        self._facts: Bounded[tuple[str, int], dict[int, BucketFacts]] = Bounded(_MOST_LAYOUTS)
        self._stages = StageWriter()

    def record(self, record: Record) -> bytes:
        """Return the line of a record that is not a bucket."""
        if isinstance(record, RunInfo):
            return _line(RunLine.of(record))
        if isinstance(record, LayoutRecord):
            self.forget(record)
            self._facts[record.model, record.generation] = layout_facts(record)
        return _line(record)

    def buckets(self, records: Iterable[BucketRecord]) -> bytes:
        """Return the lines of buckets, without what the layout of their generation says.

        Before them stands what their stages have in common and no line before has said.
        """
        buckets = [BucketLine.of(one, self._said(one), self._stages) for one in records]
        lines: list[msgspec.Struct] = [*self._stages.new, *buckets]
        self._stages.new.clear()
        try:
            return _encode_lines(lines)
        except UnicodeEncodeError:
            return b"".join(map(_line, lines))

    def forget(self, layout: LayoutRecord) -> None:
        """Take it that a layout does not stand in the file after all."""
        self._facts.pop((layout.model, layout.generation), None)

    def forget_stages(self) -> None:
        """Take it that the last buckets do not stand in the file, nor what was said before them."""
        self._stages.forget()

    def forget_all(self) -> None:
        """Take it that nothing stands in the file; numbers go on, since something may."""
        self._facts.clear()
        self._stages.forget()

    def _said(self, record: BucketRecord) -> BucketFacts | None:
        layout = self._facts.get((record.model, record.generation))
        return None if layout is None else layout.get(record.bucket)


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
