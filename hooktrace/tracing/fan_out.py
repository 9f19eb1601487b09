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


class _Given:
    """An exporter, which may be anybody's: only its two methods can raise here."""

    def __init__(self, exporter: Exporter) -> None:
        self.export, self.close = exporter.export, exporter.close
        self.name = _name_of(exporter)
        self._exporter = exporter
        self._lost: dict[str, int] = {}
        self._told = False

    def lost(self) -> dict[str, int]:
        """Return what it gave up by itself, as far as that could be read."""
        try:
            lost = getattr(self._exporter, "lost", {})
            self._lost = {str(kind): int(count) for kind, count in lost.items()}
        except BaseException as error:
            if not self._told:
                self._told = True
                logger.warning(
                    "what the %s exporter lost is unknown, since its attribute lost could not be "
                    "read (%s: %s); it has to be a mapping from what was lost to how many",
                    self.name,
                    type(error).__name__,
                    error,
                )
        return self._lost


def _name_of(exporter: Exporter) -> str:
    """Return an exporter's name, its class's where it has none."""
    with suppress(Exception):
        name = getattr(exporter, "name", None)
        if isinstance(name, str) and name:
            return name
    return type(exporter).__name__


class FanOut:
    """The exporters of a tracer, in the drain thread; ``losses`` counts what they do not get."""

    def __init__(self, exporters: Sequence[Exporter], losses: LossLedger) -> None:
        self._all = tuple([_Given(exporter) for exporter in exporters])
        self._working = list(self._all)
        self._losses = losses
        self._failures: Counter[str] = Counter()

    @property
    def names(self) -> list[str]:
        """The exporters' names."""
        return [exporter.name for exporter in self._all]

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
            for kind, count in exporter.lost().items():
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

    def _disable(self, exporter: _Given, error: BaseException) -> None:
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

    def __init__(self, names: Sequence[str]) -> None:
        self.name = ", ".join(names)

    def export(self, batch: object) -> None:
        """Say why nothing is exported."""
        raise RuntimeError(
            "this process was forked after its tracer was made, and files, sockets and threads "
            "stay with the parent; make a new Tracer in the child"
        )

    def close(self) -> None:
        """Do nothing."""
