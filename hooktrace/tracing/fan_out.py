"""Batches to every exporter; one that raises is closed, disabled, logged once and counted.

Batch --export--> each exporter that still works        failures, buckets not exported
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from ..exporters.base import Exporter
from ..records import Batch
from .losses import LossLedger

logger = logging.getLogger("hooktrace")


class FanOut:
    """The exporters of a tracer, in the drain thread; ``losses`` counts what they do not get."""

    def __init__(self, exporters: Sequence[Exporter], losses: LossLedger) -> None:
        self._all = tuple(exporters)
        self._working = list(exporters)
        self._losses = losses
        self._failures: Counter[str] = Counter()

    @property
    def failures(self) -> dict[str, int]:
        """How many exporters of each name raised."""
        return dict(self._failures)

    def all_failures(self) -> dict[str, int]:
        """Return the same, with 0 for those of which none raised."""
        return {exporter.name: self._failures[exporter.name] for exporter in self._all}

    def own_losses(self) -> Counter[str]:
        """Return what exporters gave up by themselves, by their name and reason."""
        losses: Counter[str] = Counter()
        for exporter in self._all:
            for kind, count in getattr(exporter, "lost", {}).items():
                losses[f"{exporter.name}_{kind}"] += count
        return losses

    def export(self, batch: Batch) -> None:
        """Give a batch to every exporter that works."""
        for exporter in list(self._working):
            try:
                exporter.export(batch)
            except BaseException as error:  # SystemExit too: it would end the drain in silence
                self._disable(exporter, error)
        disabled = len(self._all) - len(self._working)
        if disabled:
            buckets = sum(len(buckets) for _, buckets in batch.steps)
            self._losses.add("not_exported", disabled * buckets)

    def close(self) -> None:
        """Close the exporters that still work."""
        for exporter in self._working:
            try:
                exporter.close()
            except BaseException as error:
                self._failures[exporter.name] += 1
                logger.warning(
                    "the %s exporter could not close: %s: %s; what it held last may be missing "
                    "from its output",
                    exporter.name,
                    type(error).__name__,
                    error,
                )

    def _disable(self, exporter: Exporter, error: BaseException) -> None:
        self._working.remove(exporter)
        self._failures[exporter.name] += 1
        logger.warning(
            "the %s exporter raised %s: %s; it is disabled for the rest of the run, training "
            "and the other exporters go on; fix the cause and restart to have it back",
            exporter.name,
            type(error).__name__,
            error,
        )
        with suppress(BaseException):  # it has failed, and that was said
            exporter.close()


class LeftWithParent:
    """Stands in a forked child for the parent's exporters, and says once that they are gone."""

    def __init__(self, exporters: Sequence[Exporter]) -> None:
        self.name = ", ".join(exporter.name for exporter in exporters)

    def export(self, batch: object) -> None:
        """Say why nothing is exported."""
        raise RuntimeError(
            "this process was forked after its tracer was made, and files, sockets and threads "
            "stay with the parent; make a new Tracer in the child"
        )

    def close(self) -> None:
        """Do nothing."""
