"""A selector that lets other threads have the interpreter lock while much comes at once.

A thread that wants the lock gets it after the switch interval of 5 ms, unless who has it sleeps: a
call into the kernel that returns at once is over before the other thread has woken.
"""

from __future__ import annotations

import random
import selectors
import time

_AT_ONCE = 16
"""Connections that are served in one go of the loop."""
_LONGEST_S = 0.001
"""Of work without a breath."""
_BREATH_S = 0.0002
_WAITED_S = 0.0002
"""A wait of that length was a breath itself."""


class GivingWay(selectors.DefaultSelector):
    """Reports some of many connections at a time, and sleeps a moment after some work."""

    _since_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return connections for which there is something to do; of many, some drawn by lot."""
        start = time.monotonic()
        if start - self._since_s > _LONGEST_S:
            time.sleep(_BREATH_S)
            self._since_s = time.monotonic()
        asked_s = time.monotonic()
        found = super().select(timeout)
        now = time.monotonic()
        if now - asked_s > _WAITED_S:
            self._since_s = now
        if len(found) <= _AT_ONCE:
            return found
        first = random.randrange(len(found))  # the same ones first would keep the others waiting
        return (found[first:] + found[:first])[:_AT_ONCE]
