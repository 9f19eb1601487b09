"""The TensorBoard exporter: scalars, histograms, bucket assignments and anomalies of each model.

    Batch --ModelSeries (tensorboard_model.py)--> EventFile (event_file.py), one write a batch

Each model has a group of its own in TensorBoard, ``hooktrace.<model>``; each rank is a run,
``rank0``, ``rank1``, ..., so that the ranks of one metric share a chart.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..records import AnomalyRecord, AssignmentRecord, Batch, RunInfo, SkewRecord
from ..records.errors import check_counts
from .append_file import writable_directory
from .base import needing
from .model_labels import ModelLabels
from .tensorboard_model import ModelSeries

if TYPE_CHECKING:
    from .event_file import EventFile


class TensorBoardExporter:
    """Writes one run directory a rank, ``<logdir>/rank<N>``, for ``tensorboard --logdir <logdir>``.

    Per model, with the step as TensorBoard's step: the scalars of ``tensorboard_tags.MEANINGS`` on
    every ``scalar_every``-th step (about 400 bytes each), of errors and delays on checked steps;
    histograms of the durations of buckets and stages, once every ``histogram_every`` steps over all
    buckets since the last one, and for the rest when the exporter is closed; tables of the layout,
    once a rebuild, and of the latest anomalies.  ``hooktrace/records_lost.*`` says what was lost.

    A long run is thinned out: after 2,000 points every second one is written, after 4,000 every
    fourth, and so on, and of histograms the same.

    Of the first ``metrics.MAX_MODELS`` models.  Warm-up, join() dummy and incomplete steps give no
    timings, as in ``metrics``.

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
        check_counts(1, scalar_every=scalar_every, histogram_every=histogram_every)
        with needing("tensorboard", "TensorBoard"):
            from .event_file import EventFile
        self._make_file = EventFile
        self._logdir = writable_directory(logdir)
        self._scalar_every = scalar_every
        self._histogram_every = histogram_every
        self._file: EventFile | None = None
        self._begun = False
        self._models: dict[str, ModelSeries] = {}
        self._labels = ModelLabels(self.name)
        self._losses: dict[str, int] = {}

    def export(self, batch: Batch) -> None:
        """Write the batch with one write.  Raises ``OSError`` when it fails."""
        file = self._file
        if file is None:
            folder = writable_directory(self._logdir / f"rank{batch.run.rank}")
            file = self._file = self._make_file(folder)
        if not self._begun and (steps := _steps_of(batch)):
            self._begun = True
            file.begin(min(steps))
            for model in self._models.values():
                model.overtaken()
        self._records(file, batch, AssignmentRecord, ModelSeries.write_assignment)
        self._records(file, batch, SkewRecord, ModelSeries.expect)
        for step, buckets in batch.steps:
            if series := self._model(file, batch.run, step.model):
                series.step(step, buckets, self._scalar_every, self._histogram_every)
        self._records(file, batch, AnomalyRecord, ModelSeries.anomaly)
        for model in self._models.values():
            model.write_anomalies()
        self._write_losses(file, batch)
        try:
            file.flush()
        except OSError:
            self._let_go(file)
            raise

    def close(self) -> None:
        """Write the histograms and anomalies that are due and let go of the file.

        Raises ``OSError`` when the last write fails.  Nothing is written where ``export`` failed
        before: its disk is full or gone.
        """
        file = self._file
        if file is None:
            return
        try:
            for model in self._models.values():
                model.write_histograms()
                model.write_anomalies(last=True)
            file.flush()
        finally:
            self._let_go(file)

    def _let_go(self, file: EventFile) -> None:
        file.close()
        self._file = None
        self._models.clear()
        self._losses.clear()

    def _records(
        self, file: EventFile, batch: Batch, kind: Any, take: Callable[[ModelSeries, Any], None]
    ) -> None:
        for record in batch.of(kind):
            if model := self._model(file, batch.run, record.model):
                take(model, record)

    def _model(self, file: EventFile, run: RunInfo, name: str) -> ModelSeries | None:
        """Return what writes a model's events, ``None`` where there are too many models."""
        model = self._models.get(name)
        if model is None and self._labels.knows(name):
            model = self._models[name] = ModelSeries(file, run, name)
        return model

    def _write_losses(self, file: EventFile, batch: Batch) -> None:
        if batch.losses == self._losses or not batch.steps:
            return
        self._losses = dict(batch.losses)
        step = batch.steps[-1][0]
        values = [(f"hooktrace/records_lost.{r}", n) for r, n in batch.losses.items()]
        file.scalars(step.step, batch.run.wall_ns(step.done_ns), values)


def _steps_of(batch: Batch) -> list[int]:
    """Return the steps that a batch's records are of; a notice may be of none."""
    return [
        *(step.step for step, _ in batch.steps),
        *(layout.step for layout in batch.of(AssignmentRecord)),
        *(skew.step for skew in batch.of(SkewRecord)),
        *(anomaly.step for anomaly in batch.of(AnomalyRecord) if anomaly.bucket >= 0),
    ]
