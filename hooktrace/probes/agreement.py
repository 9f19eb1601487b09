"""How the ranks of a model agree on its probes, through torch's key-value store.

**By what they know it.**  ``key_of``: whatever tells it from other models; models that agree in all
of that are known by their order.

**From which step on** (``Agreement``).

    every rank      at its first step: "I trace it, and want these probes"
    first rank      once it sees all of them: "we meet at step M"; the others ask at each step
    every rank      waits at step M for all others; probes begin after the last one's step
    any rank        where a probe failed: "this round is over, at step S"; the next one begins there

Until M is named nobody waits, so that a job in which only some ranks trace goes on as if none did.
M is far enough ahead for ranks that a hook keeps in step, all of them or neighbours only, to hear
of it in time: as far as the round is old, since a rank asks at least at every doubling of that, and
some steps more.  A hook that does not communicate at all lets a rank run past M: it comes as soon
as it hears of it, and if it has ended by then the others wait for the timeout, once.

**Whether all are at one place** (``Consent``), before each probe.

    each rank      "I am there, and have issued so many collectives"; the last of them says "go"
    the others     wait for the word, and say "stop" when a rank does not come
    the store      takes the first word only: it is one word for all

On a device, and of a sharded model, a probe's reference goes over a group that training uses.
There every rank has to issue it or none, at the same place: else it is paired with a collective of
the hook on another rank, and gradients would be wrong in silence.  So nothing is left to counting
steps: a rank whose tracer was switched off for a while, or that has skipped a call, is seen here.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Store

from ..staging.job import first_word, restart_count
from ..staging.slots import BucketSlot

_VALUES = 16

NEVER = -1

_AHEAD = 8
"""Steps that ranks may be apart."""

_PATIENT_STEPS = 16
"""After which a rank asks only at every doubling of the steps."""

_GO, _STOP = "go", "stop"
_PATIENCE = timedelta(seconds=1)
_KEPT = 2


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


class Agreement:
    """One round of one model's agreement, as one rank sees it.

    ``key``: the same on all ranks for the same model and no other one.  ``rank`` of ``size``.
    ``wish``: what this rank wants, in words that equal the other ranks' if they want the same.
    ``number``: of the round, which began at step ``start`` on all ranks.
    ``meeting``: the step to meet at, ``NEVER`` where the ranks want different things, ``None``
    while it is not known.  ``next_step``: when to ask again.
    """

    def __init__(
        self, store: Store, key: str, rank: int, size: int, wish: str, *, number: int, start: int
    ) -> None:
        self._store = store
        self._left = f"{key}/left"
        self._key = key
        self._number = number
        self._over = self._over_of(number)
        self._meeting = f"{key}/{number}/meeting"
        self._wishes = [f"{key}/{number}/wish/{place}" for place in range(size)]
        self._rank = rank
        self._start = start
        self.meeting: int | None = None
        self.next_step = start + 1
        store.set(self._wishes[rank], wish)
        # torch's store does not wait for a key that it sets; what it reads comes after it.
        store.check([self._wishes[rank]])

    def ask(self, step: int) -> None:
        """Look into the store once, at step ``next_step`` or later."""
        age = step - self._start
        self.next_step = step + (1 if age < _PATIENT_STEPS else age)
        if self._rank == 0:
            # One that is d steps ahead, and asks rarely, hears of it at most age + 2 d from here.
            rare = age + _AHEAD >= _PATIENT_STEPS
            self._name(step + age + (2 * _AHEAD if rare else _AHEAD))
        if self._store.check([self._meeting]):
            self.meeting = int(self._store.get(self._meeting))

    def missing(self) -> list[int]:
        """Return the ranks that have said nothing of the model, as far as is known."""
        return [r for r, wish in enumerate(self._wishes) if not self._store.check([wish])]

    def difference(self) -> str:
        """Return what this rank wants and another one does not, once all have said it."""
        wishes = [self._store.get(key).decode() for key in self._wishes]
        own = wishes[self._rank]
        other = next((rank for rank, wish in enumerate(wishes) if wish != own), self._rank)
        return f"{own} on this rank and {wishes[other]} on rank {other} of its group"

    def _name(self, meeting: int) -> None:
        if self._store.check(self._wishes):
            same = len({self._store.get(key) for key in self._wishes}) == 1
            self._store.set(self._meeting, str(meeting if same else NEVER))

    def end(self, step: int) -> int:
        """End the round after a failure at ``step``; returns the step that the first rank said."""
        return int(first_word(self._store, self._over, str(step)))

    def end_newest(self, step: int) -> None:
        """End the newest round, at ``step``, where this one is over already."""
        first_word(self._store, self._over_of(self._newest()), str(step))

    def next_round(self, step: int) -> tuple[int, int]:
        """Return the number and the start of the first round that is not over, after this one."""
        self.end(step)
        number = self._newest()
        return number, int(self._store.get(self._over_of(number - 1)))

    def _newest(self) -> int:
        """Return the first round from this one on that is not over."""
        number = self._number
        while self._store.check([self._over_of(number)]):
            number += 1
        return number

    def _over_of(self, number: int) -> str:
        return f"{self._key}/{number}/over"

    def burst(self, wanted: int) -> int:
        """Return the burst of the round: what the first rank to come to it has ``wanted``."""
        return int(first_word(self._store, f"{self._key}/{self._number}/burst", str(wanted)))

    def is_over(self) -> bool:
        """Return whether any rank has ended the round."""
        return self._store.check([self._over])

    def leave(self) -> None:
        """Let the other ranks know that this one probes the model no more.

        Said and not asked, since the store may be what hangs: a set key is not waited for.  That
        the round began where it ended does no harm: who sees its end sees first who has left.
        """
        self._store.set(self._left, str(self._rank))
        self._store.set(self._over, str(self._start))

    def has_left(self) -> int | None:
        """Return the rank that said last that it probes no more, ``None`` if there is none."""
        return int(self._store.get(self._left)) if self._store.check([self._left]) else None


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
        same = first_word(self._store, first, str(issued)) == str(issued)
        if not same or self._store.add(count, 1) == self._size:
            answer = first_word(self._store, word, _GO if same else _STOP)
        else:
            self._wait(word, timeout, is_over)
            answer = first_word(self._store, word, _STOP)
        self._clean(self._keys(place))
        self.refusal = "" if answer == _GO else answer.removeprefix(_STOP)
        return answer == _GO

    def refuse(self, place: str, why: str) -> None:
        """Let those who wait at a place go on, and know ``why`` this rank does not come."""
        _, _, word = keys = self._keys(place)
        first_word(self._store, word, _STOP + why)
        self._clean(keys)

    def _keys(self, place: str) -> tuple[str, ...]:
        return tuple(f"{self._key}/{place}/{name}" for name in ("count", "first", "word"))

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
