"""The record file exporter: the files that report, export and the TensorBoard tab read.

    Batch --retention.py: which steps in detail?--> lines of codec --record_parts.py--> files

``records.codec`` defines what stands in the files, ``retention`` which steps are kept in detail,
``record_parts`` how the files are kept within a size; none of them is ever shared by two runs.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from pathlib import Path

from msgspec.structs import replace

from ..records import (
    AnomalyRecord,
    Batch,
    BucketRecord,
    ClockRecord,
    CompletedStep,
    LayoutRecord,
    RunInfo,
    SkewRecord,
    StepRecord,
)
from ..records.files import record_path
from .append_file import writable_directory
from .record_parts import LEAST_BYTES, Counts, RecordParts, move_away
from .retention import MOST_MODELS, DetailPolicy, Retention, Verdict


class RecordFileExporter:
    """Writes ``<logdir>/plugins/hooktrace/rank<NNNNN>.jsonl``: one record a line, as JSON.

    Every export appends whole lines with one unbuffered write, so a killed process leaves a file
    that can be read, and ``records.reader.read_parts`` gives the records back.

    It can be left on: all steps, layouts and anomalies are written, but the buckets and stages only
    of the steps that ``retention`` says.  A step without them has ``detail_kept`` false.

    ``max_bytes`` bounds all files of a run together.  They are parts of an eighth of it, the next
    ones called ``rank<NNNNN>.part1.jsonl`` and so on, each readable by itself.  When the limit is
    reached the oldest goes, but never the first; that is said once in the log.  ``lost`` counts, by
    kind, the records that are too large for a part, ``left_out`` and ``removed`` what the retention
    and the limit took; the files end with the same counts.

    The files of an earlier run are kept: they become ``rank<NNNNN>.1.jsonl`` (and
    ``.1.part1.jsonl``), older ones ``.2.jsonl`` and so on; ``keep`` is how many runs are kept.
    Each run has files to itself.

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
        self._earlier = Counts()
        self._max_bytes = max_bytes
        self._keep = keep
        self._retention = retention or Retention()
        self._logdir = writable_directory(logdir)
        writable_directory(record_path(logdir, 0).parent)
        self._run: RunInfo | None = None
        self._writer: _Writer | None = None
        self._pid = os.getpid()

    @property
    def path(self) -> Path | None:
        """The run's first file; ``None`` before the first export, which tells the rank."""
        return None if self._run is None else record_path(self._logdir, self._run.rank)

    @property
    def lost(self) -> Counter[str]:
        """Records that were not written: no part can hold them."""
        return self._earlier.lost + self._counts.lost

    @property
    def left_out(self) -> Counter[str]:
        """Steps and buckets whose detail the retention did not keep."""
        return self._earlier.left_out + self._counts.left_out

    @property
    def removed(self) -> Counter[str]:
        """Parts, and the records in them, that went when the limit was reached."""
        return self._earlier.removed + self._counts.removed

    @property
    def _counts(self) -> Counts:
        return Counts() if self._writer is None else self._writer.counts

    def export(self, batch: Batch) -> None:
        """Append the batch's records.  Raises ``OSError`` when they cannot be written."""
        writer = self._writer
        if writer is None or batch.run != self._run:
            self.close()
            writer = self._writer = self._open(batch.run)
        elif os.getpid() != self._pid:
            return  # a forked child: the files are its parent's
        writer.write(batch)

    def close(self) -> None:
        """End the file with what is not in it, by kind, and let go of it."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close(is_ours=os.getpid() == self._pid)
        finally:
            self._earlier.lost += writer.counts.lost
            self._earlier.left_out += writer.counts.left_out
            self._earlier.removed += writer.counts.removed

    def _open(self, run: RunInfo) -> _Writer:
        self._run = run
        self._pid = os.getpid()
        path = record_path(self._logdir, run.rank)
        move_away(path, self._keep)
        return _Writer(RecordParts(path, run, self._max_bytes), DetailPolicy(self._retention))


class _Writer:
    """One run: asks the policy about each step and hands lines to the parts."""

    def __init__(self, parts: RecordParts, policy: DetailPolicy) -> None:
        self.counts = parts.counts
        self._parts = parts
        self._policy = policy
        self._left: OrderedDict[str, CompletedStep] = OrderedDict()
        """By model, the last step if its detail was left out: the next one may tell that it was
        slow, and the last one of all says where a job ended."""

    def write(self, batch: Batch) -> None:
        """Add a batch and write it."""
        for clock in batch.of(ClockRecord):
            self._parts.clock(clock)
        for layout in batch.of(LayoutRecord):
            self._parts.layout(layout)
        self._policy.expect(batch.of(AnomalyRecord))
        for step, buckets in batch.steps:
            self._step(step, buckets)
        for anomaly in batch.of(AnomalyRecord):
            self._anomaly(anomaly)
        for skew in batch.of(SkewRecord):
            self._skew(skew)
        self._parts.flush()

    def close(self, *, is_ours: bool) -> None:
        """End the parts, with the detail of each model's last step."""
        try:
            if is_ours and not self._parts.failed:
                for model in list(self._left):
                    self._keep_left(model)
        finally:
            self._parts.close()

    def _anomaly(self, record: AnomalyRecord) -> None:
        if not self._parts.add(lambda encoder: encoder.record(record), anomalies=1):
            self._parts.lose(anomalies=1)

    def _skew(self, record: SkewRecord) -> None:
        if not self._parts.add(lambda encoder: encoder.record(record), skews=1):
            self._parts.lose(skews=1)

    def _step(self, step: StepRecord, buckets: tuple[BucketRecord, ...]) -> None:
        verdict = self._policy.decide(step, buckets)
        self.counts.left_out["slow_steps"] = self._policy.slow_left_out
        if verdict is Verdict.KEEP_BOTH:
            self._keep_left(step.model)
        self._left.pop(step.model, None)
        if verdict is not Verdict.LEAVE:
            if self._parts.add(
                lambda encoder: encoder.buckets(buckets) + encoder.record(step),
                steps=1,
                buckets=len(buckets),
            ):
                return
            self._parts.lose(buckets=len(buckets))
        elif buckets:
            step = replace(step, detail_kept=False)
            self.counts.left_out.update(steps=1, buckets=len(buckets))
            self._left[step.model] = step, buckets
            if len(self._left) > MOST_MODELS:
                self._left.popitem(last=False)
        if not self._parts.add(lambda encoder: encoder.record(step), steps=1):
            self._parts.lose(steps=1)

    def _keep_left(self, model: str) -> None:
        """Write the buckets of the model's last step after all: they stand behind its line."""
        if model not in self._left:
            return
        _, buckets = self._left.pop(model)
        count = len(buckets)
        self.counts.left_out.subtract({"steps": 1, "buckets": count})
        if not self._parts.add(lambda encoder: encoder.buckets(buckets), buckets=count):
            self._parts.lose(buckets=count)
