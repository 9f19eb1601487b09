"""Dictionaries with a bound: a job may make new models for as long as it runs.

Bounded --LastUsed: a value for each key that is asked for--> what is remembered of each model
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MOST_MODELS = 256
"""Models that are told apart at once; of more, the one not seen for longest is forgotten."""


class Bounded(dict[K, T]):
    """Keeps the ``most`` entries that were set last by ``put`` or ``[]``, the latest at the end."""

    def __init__(self, most: int = MOST_MODELS) -> None:
        super().__init__()
        self._most = most

    def put(self, key: K, value: T) -> T | None:
        """Set an entry; return the value of the one that went for it, if one did."""
        self.pop(key, None)
        super().__setitem__(key, value)
        return self.pop(next(iter(self))) if len(self) > self._most else None

    def __setitem__(self, key: K, value: T) -> None:
        """Set an entry."""
        self.put(key, value)


class LastUsed(Bounded[K, T]):
    """One value a key, which ``make`` makes where it is missing; ``most``: how many are kept."""

    def __init__(self, make: Callable[[], T], most: int = MOST_MODELS) -> None:
        super().__init__(most)
        self._make = make

    def of(self, key: K) -> T:
        """Return a key's value; of too many, the one not asked for longest goes."""
        value = self[key] if key in self else self._make()
        self.put(key, value)
        return value
