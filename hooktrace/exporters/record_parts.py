"""The files of one run's records: parts of bounded size, all of them together under a cap.

    encode(RecordEncoder) -> lines --add--> held --flush--> the newest part
                                    |
                                    +-- the part is full: end it, remove the oldest but the first
                                        where there are ``PARTS``, begin the next one

Each part can be read alone: it begins with the run, the assignments that hold and the last clock,
and ends with the counts of what is not there.  The first part stays, with the run's first steps.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..records import AssignmentRecord, ClockRecord, CompletedStep, RunInfo, StepRecord
from ..records.base import Record
from ..records.codec import RecordEncoder
from ..records.content import LISTS
from ..records.files import part_path, ranks_files
from ..records.last_used import Bounded
from ..records.lines import Losses
from .append_file import AppendFile, disk_error
from .retention import MOST_MODELS

_log = logging.getLogger(__name__)

PARTS = 8
"""Files at most: the first one and the newest."""
LEAST_BYTES = 1 << 16
_RESERVE = 1024
"""Bytes of a part kept free for the lines that end it."""
_BLOCK = 1 << 20
"""Bytes after which what was encoded is written, so that a long batch is not held twice."""

_KINDS: dict[type[Record], str] = {StepRecord: "steps", **LISTS}
"""What is counted as what, but for buckets."""


@dataclass(slots=True)
class Counts:
    """What is not in the files, by kind; ``Losses`` says what each of these means."""

    lost: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Part:
    """A part that was begun: where, which file that is, and what was written to it."""

    path: Path
    identity: tuple[int, int] | None
    written: Counter[str] = field(default_factory=Counter)


class RecordParts:
    """Writes the parts of ``run``'s records, the first one to ``path``.

    ``max_bytes``: of all of them together.  ``counts`` stand at the end of each part and the
    beginning of the next; ``lost`` and ``removed`` are counted here.
    ``failed``: a write failed.  Raises ``OSError`` when a file cannot be made, written or removed.
    """

    def __init__(self, path: Path, run: RunInfo, max_bytes: int, counts: Counts) -> None:
        self._counts = counts
        self._first = path
        self._run = run
        self._limit = max_bytes // PARTS - _RESERVE
        self._too_large = self._limit
        self._number = 0
        self._kept: deque[_Part] = deque()
        self._assignments: Bounded[str, AssignmentRecord] = Bounded(MOST_MODELS)
        self._clock: ClockRecord | None = None
        self.failed = False
        self._start = b""
        self._begin()

    def record(self, record: Record) -> None:
        """Add a record that is no bucket, or count it as lost where no part can hold it.

        The last clock and each model's last layout stand in every later part too.
        """
        if isinstance(record, ClockRecord):
            self._clock = record
        elif isinstance(record, AssignmentRecord):
            self._assignments[record.model] = record
        kind = _KINDS[type(record)]
        if not self.add(lambda encoder: encoder.record(record), **{kind: 1}):
            self.lose(kind, 1)

    def buckets(self, completed: CompletedStep) -> None:
        """Add the buckets of a step whose own line stands already."""
        _, records = completed
        if not self.add(lambda encoder: encoder.buckets(records), buckets=len(records)):
            self.lose("buckets", len(records))

    def add(self, encode: Callable[[RecordEncoder], bytes], **kinds: int) -> bool:
        """Add what ``encode`` gives, whole and in one part; ``kinds`` says how many records it is.

        Returns false for what no part can hold.
        """
        lines = encode(self._encoder)
        if not self._fits(lines) and len(lines) < self._too_large:
            self._next()
            lines = encode(self._encoder)  # a new part does not say what they share
            if not self._fits(lines):
                self._too_large = len(lines)  # else each such record would begin a part
        if not self._fits(lines):
            self._encoder.forget()
            return False
        self._lines.append(lines)
        self._held += len(lines)
        self._kept[-1].written.update(kinds)
        if self._held >= _BLOCK:
            self.flush()
        return True

    def lose(self, kind: str, count: int) -> None:
        """Count what no part could hold; the first time is said in the log."""
        if not self._counts.lost:
            _log.warning(
                "records (%s) are too large for the record file %s and are not written, only "
                "counted; pass a larger max_bytes to RecordFileExporter",
                kind,
                self._kept[-1].path,
            )
        self._counts.lost[kind] += count

    def flush(self) -> None:
        """Write what was added, as one block of whole lines."""
        if not self._lines:
            return
        start = self._start if self._file.size == 0 else b""  # again where the first write failed
        block = start + b"".join(self._lines)
        self._lines.clear()
        try:
            self._file.append(block)
        except OSError:
            self.failed = True
            self._encoder.forget()
            raise
        finally:
            self._held = 0 if self._file.size else len(self._start)

    def close(self) -> None:
        """End the last part; after a failed write only if it can be done."""
        failed_before = self.failed
        try:
            self._end()
        except OSError:
            if not failed_before:
                raise
        finally:
            self._file.close()

    def _fits(self, lines: bytes) -> bool:
        return self._file.size + self._held + len(lines) <= self._limit

    def _next(self) -> None:
        # Counted first, so that a kill in between leaves no gap without its count.
        leaving = self._count_oldest() if len(self._kept) >= PARTS else None
        self._end()
        self._file.close()
        if leaving is not None:
            _remove(leaving)
        self._number += 1
        self._begin()

    def _end(self) -> None:
        self._lines.append(self._losses(closed=True))
        self.flush()

    def _begin(self) -> None:
        path = part_path(self._first, self._number)
        try:
            self._file = AppendFile(path)
        except FileExistsError as error:
            what = f"cannot make {path}: another process writes the same rank's records"
            fix = "give each job a logdir of its own"
            raise FileExistsError(errno.EEXIST, f"{what}; {fix}") from error
        self._kept.append(_Part(path, _identity(path)))
        self._encoder = RecordEncoder()
        self._start = self._encoder.record(self._run)
        if self._number:
            self._start += self._losses(closed=False) + self._carried()
        self._lines: list[bytes] = []
        self._held = len(self._start)

    def _losses(self, *, closed: bool) -> bytes:
        counts = self._counts
        lost, left_out, removed = (dict(+c) for c in (counts.lost, counts.left_out, counts.removed))
        losses = Losses(lost=lost, left_out=left_out, removed=removed, closed=closed)
        return self._encoder.record(losses)

    def _carried(self) -> bytes:
        """Return the lines that a part repeats of those before, in at most a quarter of it."""
        found = [self._encoder.record(self._clock)] if self._clock is not None else []
        size = 0
        for record in reversed(self._assignments.values()):
            size += len(RecordEncoder().record(record))
            if size > self._limit // 4:
                break
            found.append(self._encoder.record(record))
        return b"".join(found)

    def _count_oldest(self) -> _Part:
        if not self._counts.removed:
            _log.warning(
                "the record file %s has reached its size limit; from now on its oldest parts but "
                "the first are removed, and counted, as new ones are written; pass a larger "
                "max_bytes to RecordFileExporter to keep more",
                self._first,
            )
        oldest = self._kept[1]
        del self._kept[1]
        self._counts.removed.update(oldest.written, parts=1)
        return oldest


def _remove(part: _Part) -> None:
    if _identity(part.path) != part.identity:
        return  # it was deleted, or moved away by another run whose file is there now
    try:
        part.path.unlink()
    except OSError as error:
        raise disk_error(error, f"cannot remove the old {part.path}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def move_away(folder: Path, rank: int, keep: int) -> None:
    """Make room for a rank's run: the parts of its earlier runs grow older by one, the oldest go.

    ``keep``: how many earlier runs are kept.  Raises ``OSError`` when a file cannot be moved.
    """
    ours = [(name, path) for name, path in ranks_files(folder) if name.rank == rank]
    if not any(name.age == 0 for name, _ in ours):
        return
    # Oldest first, of each run its first part last: then no part stays behind another run's file.
    for name, path in sorted(ours, reverse=True):
        try:
            if name.age >= keep:
                path.unlink()
            else:
                path.replace(path.with_name(str(name._replace(age=name.age + 1))))
        except OSError as error:
            raise disk_error(error, f"cannot move the earlier run's {path} away") from error
