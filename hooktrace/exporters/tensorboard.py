"""The TensorBoard exporter: scalars, histograms, bucket layouts and anomalies of each model.

Each model has a group of its own in TensorBoard, ``hooktrace.<model>``; each rank is a run,
``rank0``, ``rank1``, ..., so that the ranks of one metric share a chart.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..records import (
    AnomalyRecord,
    Batch,
    BucketLayout,
    BucketRecord,
    LayoutRecord,
    RunInfo,
    SkewRecord,
    StepRecord,
    metrics,
)
from .append_file import writable_directory

if TYPE_CHECKING:
    from .event_file import EventFile

__all__ = ["TensorBoardExporter"]

MAX_ROWS = 200
"""Buckets in a layout table."""
MAX_NAMES = 40
"""Parameter names in a row of a layout table."""
MAX_WAITING = 4096
"""Lags whose steps have not come."""
MAX_ANOMALIES = 50
"""Anomalies in a text; the total stands above them."""

_MEANINGS = (
    ("exposed_ms", metrics.EXPOSED.help),
    ("overlap_ratio", "Share of a step's communication that the backward pass hid."),
    ("step_period_ms", metrics.STEP_PERIOD.help),
    ("busbw_GBps", "Bus bandwidth of a step, as nccl-tests defines it."),
    ("gradient_bytes", "Bytes of gradients that a step gave to the hook."),
    ("wire_bytes", "Bytes of payload that this rank gave to collectives in a step."),
    ("compression_ratio", "Gradient bytes over wire bytes."),
    ("anomalies_total", "How often something went wrong in a hook so far."),
    ("error_bucket*", metrics.BUCKET_ERROR.help),
    ("cosine_bucket*", metrics.BUCKET_COSINE.help),
    ("residual_bucket*", "Norm of what error feedback keeps for the next step."),
    ("arrival_lag_ms", metrics.ARRIVAL_LAG.help),
    ("bucket_ms", metrics.BUCKET_DURATION.help),
    ("stage_*_ms", metrics.STAGE_DURATION.help),
)


class TensorBoardExporter:
    """Writes one run directory a rank, ``<logdir>/rank<N>``, for ``tensorboard --logdir <logdir>``.

    Per model, with the step as TensorBoard's step:

    - scalars on every ``scalar_every``-th step: ``exposed_ms``, ``overlap_ratio``,
      ``step_period_ms``, ``busbw_GBps``, ``gradient_bytes``, and where the hook's bytes are known
      ``wire_bytes``, ``compression_ratio`` (about 400 bytes a step);
    - on probed steps ``error_bucket<i>`` (relative L2), ``cosine_bucket<i>`` and, with error
      feedback, ``residual_bucket<i>``; where the ranks' clocks are known, ``arrival_lag_ms``, how
      long after the first rank this one had the probed bucket ready;
    - histograms of bucket durations and of each stage (ms), once every ``histogram_every`` steps
      over all buckets since the last one, and for the rest when the exporter is closed;
    - ``layout``: a table of the buckets and their parameters, once a generation;
    - ``anomalies``: the latest ones as a table, with their number as ``anomalies_total``.

    ``hooktrace/meaning`` (rank 0) says what each tag means, ``hooktrace/records_lost.*`` what
    was lost.

    Warm-up, shadow and incomplete steps give no timings, as in ``metrics``.

    Raises ``ImportError`` without tensorboard, ``OSError`` when ``logdir`` cannot be written,
    ``ValueError`` for a ``logdir`` that is a URL or an interval below 1.  ``export`` raises
    ``OSError`` when a write fails.  There is no thread; a call takes as long as its one write.
    """

    name = "tensorboard"

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        scalar_every: int = 1,
        histogram_every: int = 100,
    ) -> None:
        if scalar_every < 1 or histogram_every < 1:
            raise ValueError("scalar_every and histogram_every count steps; pass at least 1")
        try:
            from .event_file import EventFile
        except ImportError as error:
            raise ImportError(
                f"the TensorBoard exporter needs tensorboard ({error}); pip install tensorboard"
            ) from error
        self._make_file = EventFile
        self._logdir = writable_directory(logdir)
        self._scalar_every = scalar_every
        self._histogram_every = histogram_every
        self._file: EventFile | None = None
        self._run: RunInfo | None = None
        self._models: dict[str, _Model] = {}
        self._losses: dict[str, int] = {}

    def export(self, batch: Batch) -> None:
        """Write the batch with one write.  Raises ``OSError`` when it fails."""
        file = self._file
        if file is None or batch.run != self._run:
            self.close()
            file = self._open(batch)
        for layout in batch.of(LayoutRecord):
            self._model(layout.model).layout(file, batch.run, layout)
        for skew in batch.of(SkewRecord):
            if skew.uncertainty_ns is not None:
                self._model(skew.model).skews.append(skew)
        for step, buckets in batch.steps:
            self._step(file, batch.run, step, buckets)
        for anomaly in batch.of(AnomalyRecord):
            self._model(anomaly.model).anomaly(anomaly)
        for model in self._models.values():
            model.write_anomalies(file, batch.run)
        self._write_losses(file, batch)
        try:
            file.flush()
        except OSError:
            self._let_go()
            raise

    def close(self) -> None:
        """Write the histograms and anomalies that are due and let go of the file.

        Raises ``OSError`` when the last write fails.  Nothing is written where ``export`` failed
        before: its disk is full or gone.
        """
        if self._file is None or self._run is None:
            return
        try:
            for model in self._models.values():
                model.write_histograms(self._file)
                model.write_anomalies(self._file, self._run, last=True)
            self._file.flush()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._run = None
        self._models = {}
        self._losses = {}

    def _open(self, batch: Batch) -> EventFile:
        steps = [
            *(step.step for step, _ in batch.steps),
            *(layout.step for layout in batch.of(LayoutRecord)),
            *(anomaly.step for anomaly in batch.of(AnomalyRecord)),
        ]
        directory: Path = writable_directory(self._logdir / f"rank{batch.run.rank}")
        first_step = min(steps, default=0)
        file = self._file = self._make_file(directory, first_step)
        self._run = batch.run
        if batch.run.rank == 0:
            rows = [f"{name} | {_escape(meaning)}" for name, meaning in _MEANINGS]
            table = _table("tag | meaning", rows)
            file.text(first_step, batch.run.wall_anchor_ns, "hooktrace/meaning", table)
        return file

    def _model(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = _Model(name)
        return model

    def _step(
        self, file: EventFile, run: RunInfo, step: StepRecord, buckets: tuple[BucketRecord, ...]
    ) -> None:
        model = self._model(step.model)
        wall_ns = run.wall_ns(step.done_ns)
        sampled = [*model.errors(buckets), *model.lag(step.step)]
        if sampled:
            file.scalars(step.step, wall_ns, sampled)
        if not step.counts:
            return
        # What an opaque hook sends is known of few steps: none of them is left out.
        if model.timed_steps % self._scalar_every == 0 or step.sent is not None:
            file.scalars(step.step, wall_ns, model.scalars(step))
        model.collect(step.step, wall_ns, buckets)
        if model.timed_steps % self._histogram_every == 0:
            model.write_histograms(file)

    def _write_losses(self, file: EventFile, batch: Batch) -> None:
        if batch.losses == self._losses or not batch.steps:
            return
        self._losses = dict(batch.losses)
        step = batch.steps[-1][0]
        values = [(f"hooktrace/records_lost.{r}", n) for r, n in batch.losses.items()]
        file.scalars(step.step, batch.run.wall_ns(step.done_ns), values)


@dataclass(slots=True)
class _Model:
    """What is remembered of one model between exports; all of it bounded."""

    name: str
    timed_steps: int = 0
    group: str = field(init=False)
    tags: dict[str, str] = field(default_factory=dict)
    durations_ns: dict[str, array[int]] = field(default_factory=dict)
    window_end: tuple[int, int] = (0, 0)
    skews: deque[SkewRecord] = field(default_factory=lambda: deque(maxlen=MAX_WAITING))
    anomalies: deque[AnomalyRecord] = field(default_factory=lambda: deque(maxlen=MAX_ANOMALIES))
    anomaly_count: int = 0
    anomalies_written: int = 0
    anomalies_due: int = 1
    anomaly_step: int = 0

    def __post_init__(self) -> None:
        # A slash would end the group's name.
        self.group = "hooktrace." + self.name.replace("%", "%25").replace("/", "%2F")

    def tag(self, name: str) -> str:
        """Return the model's tag for a metric; TensorBoard groups by what is before the slash."""
        return f"{self.group}/{name}"

    def scalars(self, step: StepRecord) -> Iterator[tuple[str, float]]:
        """Yield (tag, value) of what is known of a step."""
        busbw = step.busbw_bytes_per_second
        for name, value, divisor in (
            ("exposed_ms", step.exposed_ns, 1e6),
            ("overlap_ratio", step.overlap_ratio, 1),
            ("step_period_ms", step.period_ns, 1e6),
            ("busbw_GBps", busbw, 1e9),
            ("gradient_bytes", step.gradient_bytes, 1),
            ("wire_bytes", step.wire_bytes, 1),
            ("compression_ratio", step.compression_ratio, 1),
        ):
            if value is not None:
                yield self.tag(name), value / divisor

    def errors(self, buckets: tuple[BucketRecord, ...]) -> Iterator[tuple[str, float]]:
        """Yield (tag, value) of the buckets that were probed."""
        for bucket in buckets:
            if bucket.error is None or bucket.shadow or bucket.bucket >= metrics.MAX_BUCKET_LABELS:
                continue
            for name, value in (
                ("error", bucket.error.relative_l2),
                ("cosine", bucket.error.cosine),
                ("residual", bucket.error.residual_l2),
            ):
                if value is not None:
                    yield self.tag(f"{name}_bucket{bucket.bucket}"), value

    def lag(self, step: int) -> Iterator[tuple[str, float]]:
        """Yield (tag, value) of the largest lag of a step's probed buckets.

        TensorBoard takes a step that goes back for a restart, so a lag waits for its step.
        """
        lags = [skew.lag_ns for skew in self.skews if skew.step == step]
        if lags:
            yield self.tag("arrival_lag_ms"), max(lags) / 1e6
        while self.skews and self.skews[0].step <= step:
            self.skews.popleft()

    def collect(self, step: int, wall_ns: int, buckets: tuple[BucketRecord, ...]) -> None:
        """Take a timed step's bucket and stage durations into the window."""
        self.timed_steps += 1
        self.window_end = (step, wall_ns)
        windows = self.durations_ns
        for bucket in buckets:
            interval = bucket.interval_ns
            if interval is None or bucket.exception is not None:
                continue
            totals = {"bucket": interval[1] - interval[0]}
            for stage in bucket.timed_stages:
                name = stage.name
                totals[name] = totals.get(name, 0) + stage.end_ns - stage.start_ns
            for name, ns in totals.items():
                if name in windows:
                    windows[name].append(ns)
                else:
                    windows[name] = array("q", (ns,))

    def write_histograms(self, file: EventFile) -> None:
        """Write the window's histograms and begin the next window."""
        step, wall_ns = self.window_end
        for name, values in self.durations_ns.items():
            tag = self.tag("bucket_ms" if name == "bucket" else f"stage_{name}_ms")
            file.histogram(step, wall_ns, tag, values)
        self.durations_ns.clear()

    def layout(self, file: EventFile, run: RunInfo, layout: LayoutRecord) -> None:
        """Write a layout's table."""
        wall_ns = run.wall_ns(layout.time_ns)
        file.text(layout.step, wall_ns, self.tag("layout"), _layout_table(layout))

    def anomaly(self, anomaly: AnomalyRecord) -> None:
        """Remember an anomaly for the next table."""
        self.anomalies.append(anomaly)
        self.anomaly_count += 1
        self.anomaly_step = max(self.anomaly_step, anomaly.step)

    def write_anomalies(self, file: EventFile, run: RunInfo, *, last: bool = False) -> None:
        """Write the table when a quarter more have come than it had, so that it stays bounded."""
        due = (
            self.anomaly_count > self.anomalies_written
            if last
            else (self.anomaly_count >= self.anomalies_due)
        )
        if not due:
            return
        self.anomalies_written = self.anomaly_count
        self.anomalies_due = self.anomaly_count + 1 + self.anomaly_count // 4
        wall_ns = run.wall_ns(self.anomalies[-1].time_ns)
        table = _anomaly_table(self.anomalies, self.anomaly_count)
        file.text(self.anomaly_step, wall_ns, self.tag("anomalies"), table)
        file.scalars(
            self.anomaly_step, wall_ns, [(self.tag("anomalies_total"), self.anomaly_count)]
        )


# An underscore inside a word is the only punctuation common in names that Markdown leaves alone.
_MARKUP = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|[^A-Za-z0-9 ._-]")


def _escape(text: str) -> str:
    """Return ``text`` so that neither Markdown nor HTML reads markup in it."""
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)


def _table(head: str, rows: list[str]) -> str:
    columns = head.count("|") + 1
    return "\n".join([head, "|".join(["---"] * columns), *rows])


def _parameters(entry: BucketLayout) -> str:
    named = [
        f"{_escape(name)} ({'x'.join(map(str, shape)) or 'scalar'})"
        for name, shape in entry.parameters[:MAX_NAMES]
    ]
    more = len(entry.parameters) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _layout_table(layout: LayoutRecord) -> str:
    total = sum(entry.gradient_bytes for entry in layout.buckets)
    rows = [
        f"{entry.bucket} | {_escape(entry.dtype)} | {_escape(entry.device_type)} | {entry.numel}"
        f" | {entry.gradient_bytes} | {len(entry.parameters)} | {_parameters(entry)}"
        for entry in layout.buckets[:MAX_ROWS]
    ]
    more = len(layout.buckets) - len(rows)
    return (
        f"**Generation {layout.generation}**: {len(layout.buckets)} buckets, {total} bytes of "
        f"gradients, hook {_escape(layout.hook)}\n\n"
        + _table("bucket | dtype | device | elements | bytes | parameters | names (shapes)", rows)
        + (f"\n\n{more} more buckets are not shown." if more else "")
    )


def _anomaly_table(anomalies: deque[AnomalyRecord], total: int) -> str:
    rows = [
        f"{a.step} | {a.generation} | {a.bucket} | {_escape(a.stage)} | {_escape(a.kind)}"
        f" | {_escape(a.message)}"
        for a in reversed(anomalies)
    ]
    return f"**{total} anomalies**, the latest {len(rows)} first\n\n" + _table(
        "step | generation | bucket | stage | kind | message", rows
    )
