"""How many models and units are told apart: a job may make new ones for as long as it runs.

Each name is kept by whoever reads the metrics, for ever.  The first ``MAX_MODELS`` have theirs;
what later ones count adds up under ``other``, of which a gauge, a last value, would say nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..records import Unit
from ..records import metrics as m

if TYPE_CHECKING:
    from .observations import Column, Labels

logger = logging.getLogger("hooktrace")

_OTHER = ("other", "other")


class ModelLabels:
    """The models that one exporter tells apart; ``exporter``: its name, for the one warning."""

    def __init__(self, exporter: str) -> None:
        self._exporter = exporter
        self._known: set[tuple[str, ...]] = set()
        self._told = False

    def knows(self, model: str, hook: str = "") -> bool:
        """Return whether a model is told apart, from now on if there is room."""
        key = (model, hook)
        if key in self._known:
            return True
        if len(self._known) < m.MAX_MODELS:
            self._known.add(key)
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


class UnitLabels:
    """The units that are told apart, of each model the first ``MAX_UNITS``."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def of(self, model: Labels, unit: Unit) -> Labels:
        """Return the label values of a unit's collective; ``model``: its name and hook."""
        known = self._known.get(model[0])
        if known is None and len(self._known) < m.MAX_MODELS:
            known = self._known[model[0]] = set()
        name = m.OTHER
        if known is not None and (unit.name in known or len(known) < m.MAX_UNITS):
            known.add(unit.name)
            name = unit.name
        return *model, name, unit.collective, unit.phase
