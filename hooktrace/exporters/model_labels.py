"""How many models are told apart: a job may make new ones for as long as it runs.

Each name is kept by whoever reads the metrics, for ever.  The first ``MAX_MODELS`` have theirs;
what later ones count adds up under ``other``, of which a gauge, a last value, would say nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from ..records import metrics as m

if TYPE_CHECKING:
    from .observations import Column

logger = logging.getLogger("hooktrace")

_OTHER = ("other", "other")


class First:
    """The first ``most`` names, which are told apart for ever."""

    def __init__(self, most: int) -> None:
        self._names: set[Hashable] = set()
        self._most = most

    def has(self, name: Hashable) -> bool:
        """Return whether a name is among them, from now on if there is room."""
        if len(self._names) < self._most:
            self._names.add(name)
        return name in self._names


class ModelLabels:
    """The models that one exporter tells apart; ``exporter``: its name, for the one warning."""

    def __init__(self, exporter: str) -> None:
        self._exporter = exporter
        self._known = First(m.MAX_MODELS)
        self._told = False

    def knows(self, model: str, hook: str = "") -> bool:
        """Return whether a model is told apart, from now on if there is room."""
        if self._known.has((model, hook)):
            return True
        if not self._told:
            self._told = True
            logger.warning(
                "the %s exporter tells %d models apart, and %r is one more: this and later ones "
                "are not shown by name, and where numbers add up they are counted as model "
                "'other'; records and files name all of them",
                self._exporter,
                m.MAX_MODELS,
                model,
            )
        return False

    def fold(
        self, model: tuple[str, str] | None, observations: Iterable[Column]
    ) -> Iterable[Column]:
        """Return observations with bounded labels, without gauges of a model beyond the others."""
        if model is None or self.knows(*model):
            return observations
        return [
            (metric, [(*_OTHER, *own[2:]) for own in labels], values)
            for metric, labels, values in observations
            if metric.kind != "gauge"
        ]
