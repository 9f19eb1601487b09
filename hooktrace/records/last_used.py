"""What is remembered of each model: a job may make new ones for as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

MOST_MODELS = 256
"""Models that are told apart at once; of more, the one not seen for longest is forgotten."""


class LastUsed(Generic[K, T]):
    """One value a key, which ``make`` makes where it is missing; ``most``: how many are kept."""

    def __init__(self, make: Callable[[], T], most: int = MOST_MODELS) -> None:
        self._make = make
        self._most = most
        self._values: dict[K, T] = {}

    def of(self, key: K) -> T:
        """Return a key's value; of too many, the one not asked for longest goes."""
        value = self._values.pop(key) if key in self._values else self._make()
        self._values[key] = value
        if len(self._values) > self._most:
            del self._values[next(iter(self._values))]
        return value

    def items(self) -> Iterator[tuple[K, T]]:
        """Yield keys and values, the one that was asked for last at the end."""
        return iter(self._values.items())

    def clear(self) -> None:
        """Forget all of them."""
        self._values.clear()

    def __contains__(self, key: K) -> bool:
        """Whether a key has a value."""
        return key in self._values

    def __len__(self) -> int:
        """How many there are."""
        return len(self._values)


def forget_the_oldest(waiting: dict[Any, Any], most: int) -> None:
    """Remove what was put in first, until no more than ``most`` entries are left."""
    while len(waiting) > most:
        waiting.pop(next(iter(waiting)))
