"""The record file exporter: the files that report, export and the TensorBoard tab read.

    Batch --retention.py: which steps in detail?--> lines of codec --record_parts.py--> files

``records.codec`` defines what stands in the files, ``retention`` which steps are kept in detail,
``record_parts`` how the files are kept within a size; none of them is ever shared by two runs.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from ..records import AnomalyRecord, AssignmentRecord, Batch, ClockRecord, CompletedStep, RunInfo
from ..records.base import Record
from ..records.content import LISTS
from ..records.files import record_path
from .append_file import writable_directory
from .record_parts import LEAST_BYTES, Counts, RecordParts, move_away
from .retention import DetailPolicy, Retention

_log = logging.getLogger("hooktrace")

_BEFORE_STEPS: tuple[type[Record], ...] = (ClockRecord, AssignmentRecord)
_AFTER_STEPS = [kind for kind in LISTS if kind not in _BEFORE_STEPS]

_open_paths: set[Path] = set()
"""What exporters of this process write."""


class RecordFileExporter:
    """Writes ``<logdir>/plugins/hooktrace/rank<NNNNN>.jsonl``: one record a line, as JSON.

    Every export appends whole lines with one unbuffered write, so a killed process leaves a file
    that can be read, and ``records.reader.read_parts`` gives the records back.

    It can be left on: all steps, assignments and anomalies are written, but the buckets and stages
    only of the steps that ``retention`` says.  A step without them has ``detail_kept`` false.

    ``max_bytes`` bounds all files of a run together.  They are parts of an eighth of it, the next
    ones called ``rank<NNNNN>.part1.jsonl`` and so on, each readable by itself.  When the limit is
    reached the oldest goes, but never the first; that is said once in the log.  ``lost`` counts, by
    kind, the records that are too large for a part; ``counts`` also what the retention and the
    limit took.  The files end with the same counts.

    The files of an earlier run are kept: they become ``rank<NNNNN>.1.jsonl`` (and
    ``.1.part1.jsonl``), older ones ``.2.jsonl`` and so on; ``keep`` is how many runs are kept.
    Each run has files to itself.  ``path`` is the first one; ``None`` before the first export,
    which tells the rank.

    Raises ``OSError`` when the directory cannot be made or written, and from ``export`` when a
    write fails; the file then ends at the last whole block.  ``ValueError`` for a ``logdir`` that
    is a URL, or a ``max_bytes`` or ``keep`` out of range.
    """

    name = "record_file"

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        max_bytes: int = 256 << 20,
        keep: int = 3,
        retention: Retention | None = None,
    ) -> None:
        if max_bytes < LEAST_BYTES:
            raise ValueError(f"max_bytes is {max_bytes}; pass at least {LEAST_BYTES}")
        if keep < 0:
            raise ValueError(f"keep is {keep}; pass 0 to keep no file of earlier runs")
        self._max_bytes = max_bytes
        self._keep = keep
        self._policy = DetailPolicy(retention or Retention())
        self.counts = Counts(left_out=self._policy.left_out)
        self.logdir = writable_directory(logdir)
        writable_directory(record_path(logdir, 0).parent)
        self._parts: RecordParts | None = None
        self.path: Path | None = None

    @property
    def lost(self) -> Counter[str]:
        """Records that were not written: no part can hold them."""
        return +self.counts.lost

    def keep_detail(self, model: str, first: int, steps: int) -> None:
        """Keep so many steps of a model in detail from ``first`` on.  Any thread."""
        self._policy.ask(model, first, steps)

    def export(self, batch: Batch) -> None:
        """Append the batch's records.  Raises ``OSError`` when they cannot be written."""
        if self._parts is None:
            self._parts = self._open(batch.run)
        self._records(self._parts, batch, _BEFORE_STEPS)
        self._policy.expect(batch.of(AnomalyRecord))
        for completed in batch.steps:
            self._step(self._parts, completed)
        self._records(self._parts, batch, _AFTER_STEPS)
        self._parts.flush()

    def close(self) -> None:
        """Write each model's last step in detail; end the file with what is not in it, by kind."""
        parts, self._parts = self._parts, None
        if parts is None:
            return
        try:
            if not parts.failed:
                for completed in self._policy.choose_last():
                    parts.buckets(completed)
        finally:
            if self.path is not None:
                _open_paths.discard(self.path)
            parts.close()

    def _open(self, run: RunInfo) -> RecordParts:
        self.path = record_path(self.logdir, run.rank)
        if self.path in _open_paths:
            _log.warning(
                "another tracer of this process writes %s; its records so far, and to come, are "
                "moved aside as those of an earlier run: give each tracer a logdir of its own",
                self.path,
            )
        _open_paths.add(self.path)
        move_away(self.path.parent, run.rank, self._keep)
        return RecordParts(self.path, run, self._max_bytes, self.counts)

    @staticmethod
    def _records(parts: RecordParts, batch: Batch, kinds: Iterable[type[Record]]) -> None:
        for kind in kinds:
            for record in batch.of(kind):
                parts.record(record)

    def _step(self, parts: RecordParts, completed: CompletedStep) -> None:
        chosen = self._policy.choose(completed)
        for previous in chosen[:-1]:
            parts.buckets(previous)  # they stand behind their step's line
        step, buckets = chosen[-1] if chosen else completed
        if not chosen:
            parts.record(replace(step, detail_kept=False))
        elif not parts.add(
            lambda encoder: encoder.buckets(buckets) + encoder.record(step),
            steps=1,
            buckets=len(buckets),
        ):
            parts.lose("buckets", len(buckets))
            parts.record(step)
