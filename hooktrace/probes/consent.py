"""Whether all ranks of a group are at the same place among its collectives, asked by all at once.

    each rank      "I am there, and have issued so many collectives"; the last of them says "go"
    the others     wait for the word, and say "stop" when a rank does not come
    the store      takes the first word only: it is one word for all

On a device a probe's reference goes over the hook's own group.  There every rank has to issue it or
none, at the same place: else it is paired with a collective of the hook on another rank,
and gradients would be wrong in silence.  So nothing is left to counting steps: a rank whose
tracer was switched off for a while, or that has skipped a call, is seen here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

_GO, _STOP = "go", "stop"
_PATIENCE = timedelta(seconds=1)
_KEPT = 2


class Consent:
    """What the ranks of a group ask through the job's store before each probe.

    ``store``: a connection that nobody else waits at.  ``key``: of this group of ranks and no
    other.  ``size``: how many they are.  ``cleans``: whether this one deletes what is over.
    """

    def __init__(self, store: Any, key: str, size: int, *, cleans: bool) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._cleans = cleans
        self._over: list[tuple[str, ...]] = []
        self.refusal = ""
        """Why a rank refused the place that was asked for last; "" where none has."""

    def given(
        self, place: str, issued: int, timeout: timedelta, is_over: Callable[[], bool]
    ) -> bool:
        """Return whether all ranks are at ``place``, and have ``issued`` as many collectives.

        Waits for them until the ``timeout``, or until ``is_over``: one of them will not come.
        The answer is the same on all ranks.  Raises what the store raises.
        """
        count, first, word = self._keys(place)
        same = self._first(first, str(issued)) == str(issued)
        if not same or self._store.add(count, 1) == self._size:
            answer = self._first(word, _GO if same else _STOP)
        else:
            self._wait(word, timeout, is_over)
            answer = self._first(word, _STOP)
        self._clean(self._keys(place))
        self.refusal = "" if answer == _GO else answer.removeprefix(_STOP)
        return answer == _GO

    def refuse(self, place: str, why: str) -> None:
        """Let those who wait at a place go on, and know ``why`` this rank does not come."""
        _, _, word = keys = self._keys(place)
        self._first(word, _STOP + why)
        self._clean(keys)

    def _keys(self, place: str) -> tuple[str, ...]:
        return tuple(f"{self._key}/{place}/{name}" for name in ("count", "first", "word"))

    def _first(self, key: str, value: str) -> str:
        """Return the value that a key was given first, by any rank."""
        return bytes(self._store.compare_set(key, "", value)).decode()

    def _wait(self, word: str, timeout: timedelta, is_over: Callable[[], bool]) -> None:
        end = time.monotonic() + timeout.total_seconds()
        while not self._store.check([word]) and time.monotonic() < end and not is_over():
            with suppress(RuntimeError):  # the word has not come in that time
                self._store.wait([word], min(_PATIENCE, timeout))

    def _clean(self, keys: tuple[str, ...]) -> None:
        """Let go of the keys of places that all ranks have passed: they have come to later ones."""
        self._over.append(keys)
        if len(self._over) > _KEPT:
            over = self._over.pop(0)
            for key in over if self._cleans else ():
                self._store.delete_key(key)
