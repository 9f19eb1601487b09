"""The trace file exporter: one Chrome trace-event file a rank, for Perfetto and the report.

``trace_format`` defines what stands in the file; here is only how the file is kept: appended in
whole lines, bounded in size, never shared by two runs.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from ..records import (
    AnomalyRecord,
    Batch,
    BucketRecord,
    ClockRecord,
    LayoutRecord,
    RunInfo,
    SkewRecord,
    StepRecord,
)
from ..trace_format import TraceEncoder
from .append_file import AppendFile, disk_error, writable_directory

__all__ = ["TraceFileExporter", "trace_path"]

_log = logging.getLogger(__name__)

_RESERVE = 4096
"""Bytes kept free for the lines that end the file."""
_BLOCK = 1 << 20
"""Bytes after which what was encoded is written, so that a long batch is not held twice."""


def trace_path(logdir: str | os.PathLike[str], rank: int) -> Path:
    """Return where the trace file of ``rank`` lies under ``logdir``."""
    return Path(logdir) / "plugins" / "hooktrace" / f"rank{rank:05d}.trace.json"


class TraceFileExporter:
    """Writes ``<logdir>/plugins/hooktrace/rank<NNNNN>.trace.json``; opens in Perfetto as it is.

    Every export appends whole lines with one unbuffered write, so a killed process leaves a file
    that can be read, and ``trace_format.read_trace`` gives the records back.

    ``max_bytes`` bounds the file.  From three quarters of it on no bucket is written, only steps,
    layouts and anomalies, and from the end on nothing; what was left out is counted in ``lost``
    by kind, said once in the log, and stands in the file's last line.

    The file of an earlier run is kept: it becomes ``rank<NNNNN>.trace.1.json``, an older one
    ``.2.json`` and so on; ``keep`` is how many are kept.  Each run has a file to itself.

    Raises ``OSError`` when the directory cannot be made or written, and from ``export`` when a
    write fails; the file then ends at the last whole block.  ``ValueError`` for a ``logdir`` that
    is a URL, or a ``max_bytes`` or ``keep`` out of range.
    """

    name = "trace_file"

    def __init__(
        self, logdir: str | os.PathLike[str], *, max_bytes: int = 256 << 20, keep: int = 3
    ) -> None:
        if max_bytes < 16 * _RESERVE:
            raise ValueError(f"max_bytes is {max_bytes}; pass at least {16 * _RESERVE}")
        if keep < 0:
            raise ValueError(f"keep is {keep}; pass 0 to keep no file of earlier runs")
        self.lost: Counter[str] = Counter()
        self._max_bytes = max_bytes
        self._keep = keep
        self._logdir = writable_directory(logdir)
        writable_directory(trace_path(logdir, 0).parent)
        self._run: RunInfo | None = None
        self._writer: _Writer | None = None

    @property
    def path(self) -> Path | None:
        """The file being written; ``None`` before the first export, which tells the rank."""
        return None if self._run is None else trace_path(self._logdir, self._run.rank)

    def export(self, batch: Batch) -> None:
        """Append the batch's records.  Raises ``OSError`` when they cannot be written."""
        writer = self._writer
        if writer is None or batch.run != self._run:
            self.close()
            writer = self._writer = self._open(batch.run)
        for clock in batch.clocks:
            writer.clock(clock)
        for layout in batch.layouts:
            writer.layout(layout)
        for step, buckets in batch.steps:
            writer.step(step, buckets)
        for anomaly in batch.anomalies:
            writer.anomaly(anomaly)
        for skew in batch.skews:
            writer.skew(skew)
        writer.flush()

    def close(self) -> None:
        """End the file, so that it is strict JSON, and let go of it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _open(self, run: RunInfo) -> _Writer:
        self._run = run
        path = trace_path(self._logdir, run.rank)
        _rotate(path, self._keep)
        return _Writer(AppendFile(path), TraceEncoder(run), self._max_bytes, self.lost)


def _rotate(path: Path, keep: int) -> None:
    """Move the file of an earlier run out of the way; forget the oldest beyond ``keep``."""
    names = [path, *(path.with_suffix(f".{i}.json") for i in range(1, keep + 1))]
    try:
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, f"cannot move the earlier run's {path} away") from error


class _Writer:
    """One file: encodes, keeps to the limit, counts in ``total`` what it leaves out."""

    def __init__(
        self, file: AppendFile, encoder: TraceEncoder, max_bytes: int, total: Counter[str]
    ) -> None:
        self._file = file
        self._encoder = encoder
        self._limit = max_bytes - _RESERVE
        self._detail_limit = max_bytes * 3 // 4
        self._lost: Counter[str] = Counter()
        self._total = total
        self._failed = False
        self._start = encoder.start()
        self._parts: list[str] = []
        self._held = len(self._start)

    def layout(self, record: LayoutRecord) -> None:
        """Add a layout."""
        self._add("layouts", self._encoder.layout(record), record.time_ns)

    def clock(self, record: ClockRecord) -> None:
        """Add a measurement of the clock."""
        self._add("clocks", self._encoder.clock(record), record.time_ns)

    def skew(self, record: SkewRecord) -> None:
        """Add when the ranks had a bucket ready."""
        self._add("skews", self._encoder.skew(record), record.time_ns)

    def anomaly(self, record: AnomalyRecord) -> None:
        """Add an anomaly."""
        self._add("anomalies", self._encoder.anomaly(record), record.time_ns)

    def step(self, record: StepRecord, buckets: tuple[BucketRecord, ...]) -> None:
        """Add a step after its buckets, or without them when detail has ended."""
        if self._file.size + self._held >= self._detail_limit:
            self._lose("buckets", len(buckets), record.first_ready_ns)
        else:
            lines = self._encoder.buckets(record, buckets)
            self._add("buckets", lines, record.first_ready_ns, len(buckets))
        self._add("steps", self._encoder.step(record, buckets), record.first_ready_ns)

    def _add(self, kind: str, lines: str, host_ns: int, count: int = 1) -> None:
        if self._file.size + self._held + len(lines) > self._limit:
            self._lose(kind, count, host_ns)
            return
        self._parts.append(lines)
        self._held += len(lines)
        if self._held >= _BLOCK:
            self.flush()

    def _lose(self, kind: str, count: int, host_ns: int) -> None:
        if not count:
            return
        first = not self._lost
        self._lost[kind] += count
        self._total[kind] += count
        if first:
            self._parts.append(self._encoder.limit(host_ns, self._lost))
            _log.warning(
                "the trace file %s has reached its limit; %s and later detail are not written, "
                "only counted; pass a larger max_bytes to TraceFileExporter",
                self._file.path,
                kind,
            )

    def flush(self) -> None:
        """Write what was added, as one block of whole lines (they are ASCII)."""
        if not self._parts:
            return
        start = self._start if self._file.size == 0 else ""  # again where the first write failed
        block = (start + "".join(self._parts)).encode("ascii")
        self._parts.clear()
        self._held = 0
        try:
            self._file.append(block)
        except OSError:
            self._failed = True
            raise

    def close(self) -> None:
        """End the file; after a failed write only if it can be done."""
        failed_before = self._failed
        try:
            self._parts.append(self._encoder.end(self._lost))
            self.flush()
        except OSError:
            if not failed_before:
                raise
        finally:
            self._file.close()
