"""Steps by model: the last of each, put together as they come."""

from __future__ import annotations

from collections.abc import Iterator

from ...records import StepSpread
from ...records.job import merged
from ...records.last_used import LastUsed

Model = tuple[str, str]
"""Its name and its hook's."""

_MODELS = 16
"""Told apart at once; a job may make new ones for as long as it runs."""


class StepTable:
    """Keeps the ``most`` steps of each model that came last; ``lost`` counts those without room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._models: LastUsed[Model, dict[int, StepSpread]] = LastUsed(dict, _MODELS)
        self.lost = 0

    def add(self, model: Model, part: StepSpread) -> tuple[StepSpread | None, bool]:
        """Take a part of a step; returns the step by now, and whether it is a new one.

        ``None`` of a step that is older than all that are kept.
        """
        steps = self._models.of(model)
        known = steps.get(part.step)
        if known is not None:
            steps[part.step] = whole = merged(known, part)
            return whole, False
        if len(steps) >= self._most:
            oldest = next(iter(steps))
            self.lost += 1
            if part.step < oldest:
                return None, False
            del steps[oldest]
        steps[part.step] = part
        return part, True

    def of(self, model: Model) -> dict[int, StepSpread]:
        """Return a model's steps by number; empty where there is none of it."""
        return self._models.of(model) if model in self._models else {}

    def models(self) -> Iterator[tuple[Model, dict[int, StepSpread]]]:
        """Yield each model with its steps, the one that was seen last at the end."""
        return iter(self._models.items())

    def clear(self) -> None:
        """Forget all steps, but not how many were lost."""
        self._models.clear()
