"""How the ranks of a model agree on a probe, through torch's key-value store.

    key_of          whatever tells a model from others; models that are alike go by their order
    each rank       "I am at this place, and in this state"; the last of them says "go"
    the others      wait for the word, and say "stop" when a rank does not come
    the store       takes the first word only: it is one word for all

A probe's reference is a collective that training knows nothing of: every rank has to issue it or
none, at the same place.  On a device, and of a sharded model, it goes over a group that training
uses, where it would otherwise be paired with a collective of the hook on another rank, and
gradients would be wrong in silence.  So nothing is left to counting steps: a rank whose tracer was
switched off for a while, or that has skipped a call, is seen here.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Any

import torch

from ..staging.job import first_word, restart_count
from ..staging.slots import BucketSlot

_VALUES = 16

_GO, _STOP = "go", "stop"
_APART = "one rank has issued more collectives than another, or its last check has failed"
_PATIENCE = timedelta(seconds=1)
_KEPT_STEPS = 2

_alike: Counter[str] = Counter()
"""How many models of each kind this process has begun."""


def key_of(what: str, known: object) -> str:
    """Return the key under which the ranks agree on ``what`` of a model.

    ``known``: whatever tells the model from others and is the same on all of its ranks.
    """
    key = f"hooktrace/{what}/{restart_count()}/{zlib.crc32(repr(known).encode()):08x}"
    # Models that are alike in all this begin in the same order on all ranks.
    _alike[key] += 1
    return f"{key}/{_alike[key]}"


def known_of(ranks: tuple[int, ...], slot: BucketSlot, parameters: list[torch.Tensor]) -> object:
    """Return what all ranks know of a DDP model at its first bucket."""
    shapes = [shape for _, shape in slot.parameters]
    # To read a device's values would wait for it; there the order in which models begin has to do.
    on_host = parameters if slot.device_type == "cpu" else []
    values = [p.detach().flatten()[:_VALUES].tolist() for p in on_host]
    return ranks, slot.model.hook, slot.dtype, shapes, values


class Consent:
    """What the ranks of a group ask through the job's store before each probe; places: step/index.

    ``store``: a connection that nobody else waits at.  ``key``: of this group of ranks and no
    other.  ``size``: how many they are.  ``cleans``: whether this one deletes what is over.
    """

    def __init__(self, store: Any, key: str, size: int, *, cleans: bool) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._cleans = cleans
        self._over: dict[str, list[tuple[str, ...]]] = {}
        """By step, the keys of places that this rank is past."""
        self.refusal = ""
        """Why a rank refused the place that was asked for last; "" where none has."""

    def given(
        self, place: str, state: str, timeout: timedelta, is_over: Callable[[], bool]
    ) -> bool:
        """Return whether all ranks are at ``place``, and in one ``state``.

        Waits for them until the ``timeout``, or until ``is_over``: one of them will not come.
        The answer is the same on all ranks.  Raises what the store raises.
        """
        count, first, word = self._keys(place)
        same = first_word(self._store, first, state) == state
        if not same or self._store.add(count, 1) == self._size:
            answer = first_word(self._store, word, _GO if same else _STOP + _APART)
        else:
            self._wait(word, timeout, is_over)
            answer = first_word(self._store, word, _STOP)
        self._clean(place)
        self.refusal = "" if answer == _GO else answer.removeprefix(_STOP)
        return answer == _GO

    def refuse(self, place: str, why: str) -> None:
        """Let those who wait at a place go on, and know ``why`` this rank does not come.

        Or that it has failed there, after all of them had come.
        """
        word = self._keys(place)[-1]
        if first_word(self._store, word, _STOP + why) == _GO:
            self._store.set(word, _STOP + why)
        else:
            self._clean(place)

    def is_refused(self, place: str) -> bool:
        """Return whether a rank has failed at a place that all had come to."""
        return bytes(self._store.get(self._keys(place)[-1])).decode() != _GO

    def _keys(self, place: str) -> tuple[str, ...]:
        return tuple(f"{self._key}/{place}/{name}" for name in ("count", "first", "word"))

    def _wait(self, word: str, timeout: timedelta, is_over: Callable[[], bool]) -> None:
        end = time.monotonic() + timeout.total_seconds()
        while not self._store.check([word]) and time.monotonic() < end and not is_over():
            with suppress(RuntimeError):  # the word has not come in that time
                self._store.wait([word], min(_PATIENCE, timeout))

    def _clean(self, place: str) -> None:
        """Let go of the keys of steps that all ranks are past: they have come to later ones."""
        self._over.setdefault(place.partition("/")[0], []).append(self._keys(place))
        if len(self._over) > _KEPT_STEPS:
            places = self._over.pop(next(iter(self._over)))
            for key in chain.from_iterable(places) if self._cleans else ():
                self._store.delete_key(key)
