"""Experiment trackers: whatever takes a dict of numbers.

Tracer([log_to(wandb.log)]) --batches--> of each model its last steps --every N--> fn({...})

Names carry units; what is not known is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..records import AnomalyRecord, Batch, CompletedStep
from ..records.errors import check_counts
from ..records.summary import ModelSummary, percentile, summarize

Log = Callable[[dict[str, float]], Any]


def numbers_of(summary: ModelSummary, prefix: str = "hooktrace/") -> dict[str, float]:
    """Return the numbers of one model.

    Medians over the summary's steps: ``step_seconds``, ``exposed_seconds``, ``exposed_ratio`` (of
    the step), ``overlap_ratio``, ``busbw_bytes_per_second`` and ``error`` (relative L2, of checked
    buckets); of the last step ``gradient_bytes`` and ``wire_bytes``.
    """
    errors = [b.error_p50 for b in summary.buckets if b.error_p50 is not None]
    period_ns, exposed_ns = summary.period_p50_ns, summary.exposed_p50_ns
    found = {
        "step_seconds": None if period_ns is None else period_ns / 1e9,
        "exposed_seconds": None if exposed_ns is None else exposed_ns / 1e9,
        "exposed_ratio": summary.exposed_share,
        "overlap_ratio": summary.overlap_p50,
        "busbw_bytes_per_second": summary.busbw_p50_bytes_per_second,
        "gradient_bytes": summary.gradient_bytes,
        "wire_bytes": summary.wire_bytes,
        "error": percentile(errors, 0.5) if errors else None,
    }
    return {f"{prefix}{name}": float(value) for name, value in found.items() if value is not None}


class TrackerExporter:
    """Calls a function with the headline numbers of each model, every so many steps."""

    name = "log_to"

    def __init__(self, fn: Log, every: int, all_ranks: bool) -> None:
        self._fn = fn
        self._every = every
        self._all_ranks = all_ranks
        self._steps: dict[str, list[CompletedStep]] = {}
        self._first: str | None = None
        self._anomalies = 0

    def export(self, batch: Batch) -> None:
        """Take a batch, and call the function where enough steps are there."""
        if batch.run.rank and not self._all_ranks:
            return
        self._anomalies += sum(isinstance(record, AnomalyRecord) for record in batch.records)
        for completed in batch.steps:
            step = completed[0]
            self._first = self._first or step.model
            kept = self._steps.setdefault(step.model, [])
            kept.append(completed)
            if sum(s.counts for s, _ in kept) >= self._every:
                self._log(self._steps.pop(step.model))
            elif len(kept) >= 2 * self._every:
                del kept[0]

    def _log(self, completed: list[CompletedStep]) -> None:
        step = completed[-1][0]
        prefix = "hooktrace/" if step.model == self._first else f"hooktrace/{step.model}/"
        own = {"hooktrace/step": float(step.step), "hooktrace/anomalies": float(self._anomalies)}
        for summary in summarize(completed):
            self._fn(own | numbers_of(summary, prefix))

    def close(self) -> None:
        """Do nothing: the tracker is somebody else's."""


def log_to(fn: Log, *, every: int = 100, all_ranks: bool = False) -> TrackerExporter:
    """Return an exporter that calls ``fn({"hooktrace/step": ..., ...})`` every ``every`` steps.

    ``fn``: ``wandb.log``, comet's ``log_metrics``, or anything that takes one flat dict of floats;
    it is called on the drain's thread, and one that raises is disabled, as any exporter.  Numbers
    are of this rank, medians over the last ``every`` timed steps (see ``numbers_of``); the first
    model's are ``hooktrace/exposed_seconds`` and the like, another one's ``hooktrace/<model>/...``.
    ``all_ranks``: call it on every rank, not on rank 0 alone.

    Raises ``TypeError`` for what cannot be called, ``ValueError`` for ``every`` below 1.
    """
    if not callable(fn):
        raise TypeError(f"log_to takes a function such as wandb.log, not a {type(fn).__name__}")
    check_counts(1, every=every)
    return TrackerExporter(fn, every, all_ranks)
