"""The models that a tracer traces: their names, and their calls in flight."""

from __future__ import annotations

import threading
import weakref

from ..records.last_used import Bounded
from ..staging.slots import LayoutTracker, ModelState
from ..staging.units import ShardedModel


class TracedModels:
    """Knows the assignments of all traced hooks that are alive; safe from several threads."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        """By name: how many models were to have it."""
        self._said: Bounded[str, None] = Bounded()
        self._number = 0
        self._assignments: weakref.WeakSet[LayoutTracker | ShardedModel] = weakref.WeakSet()
        self._lock = threading.RLock()  # a signal handler may close the tracer meanwhile

    def name(self, wanted: str | None) -> str:
        """Return a name for a model that no other one has."""
        with self._lock:
            name = wanted or f"model{self._number}"
            self._number += wanted is None
            unique = name
            while unique in self._uses:
                self._uses[name] += 1
                unique = f"{name}#{self._uses[name]}"
            self._uses[unique] = 1
            return unique

    def is_new(self, what: str) -> bool:
        """Return whether something is said for the first time; a job may make many models alike."""
        with self._lock:
            is_new = what not in self._said
            self._said[what] = None
        return is_new

    def register_layout(self, layout: LayoutTracker | ShardedModel) -> None:
        """Take note of a traced hook's layout."""
        with self._lock:
            self._assignments.add(layout)

    def count_in_flight(self) -> int:
        """Return how many calls wait for their futures."""
        return sum(model.in_flight() for model in self.all())

    def leave(self) -> None:
        """End what is under way: steps of sharded models, and sampling, as the other ranks hear."""
        with self._lock:
            assignments = list(self._assignments)
        for layout in assignments:
            if isinstance(layout, ShardedModel):
                layout.leave()
        for model in self.all():
            if model.sampling is not None:
                model.sampling.leave()

    def begin_in_child(self) -> None:
        """Identify every bucket anew in a forked child, which speaks to no other rank."""
        self._lock = threading.RLock()
        for layout in list(self._assignments):
            layout.recheck()
        for model in self.all():
            if model.sampling is not None:
                model.sampling.begin_in_child()

    def all(self) -> list[ModelState]:
        """Return the models whose hooks are alive."""
        with self._lock:
            assignments = list(self._assignments)
        return [model for layout in assignments for model in layout.models]
