"""Records to lines of a record file, and lines to records.

    records --RecordEncoder--> {"kind":"run","schema":7,...}
                               {"kind":"assignment",...}          a rebuild's parameters
                               {"kind":"shared",...}          what many calls share
                               {"kind":"buckets",...}         the rest of the calls of a step
                               {"kind":"step",...}            after its buckets
                               {"kind":"losses","closed":true}
    lines --decode_line--> records and ``lines``; whole files are read by ``reader``

One JSON object a line, ASCII or UTF-8, and nothing else in the file; fields that have their default
are left out.  NaN and infinities are null (``ErrorRecord`` says how they come back).  A part of a
run is a file of its own: it begins with the run, and repeats the assignments and clock that hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from .base import Record
from .bucket import BucketRecord
from .content import ListedRecord
from .lines import BucketsLine, BucketWriter, Losses, SharedLine
from .run import RunInfo
from .step import StepRecord

Line = BucketsLine | StepRecord | RunInfo | ListedRecord | SharedLine | Losses
"""What a line may be, told apart by its ``kind``."""

_decoder = msgspec.json.Decoder(Line)
decode_line: Callable[[bytes], Line] = _decoder.decode
"""Return what one line says; raises one of ``UNREADABLE`` for a line that is none of ours."""

decode_lines: Callable[[bytes], list[Line]] = _decoder.decode_lines
"""Do the same for a block of whole lines."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)
"""What reading a damaged line may raise."""

_encoder = msgspec.json.Encoder()
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


class RecordEncoder:
    """Turns the records of one file into its lines; remembers what stands in it."""

    def __init__(self) -> None:
        self._buckets = BucketWriter()

    def record(self, record: Record) -> bytes:
        """Return the line of a record that is not a bucket."""
        return _line(record)

    def buckets(self, records: Iterable[BucketRecord]) -> bytes:
        """Return the lines of buckets, and of what they share and no line before has said."""
        lines = self._buckets.lines(records)
        try:
            return _encode_lines(lines)
        except UnicodeEncodeError:
            return b"".join(map(_line, lines))

    def forget(self) -> None:
        """Take it that nothing that was returned stands in the file."""
        self._buckets.forget()


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
