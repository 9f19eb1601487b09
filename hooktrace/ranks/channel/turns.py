"""Whose turn it is to ping: one child at a time.

Pings that wait for others' would only tell of the waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque

from .child import Child
from .messages import MayPing

_TURN_S = 1.0
"""For one child's burst of pings; then it is the next one's turn."""


class Turns:
    """Children that wait for their turn; the first one has it."""

    def __init__(self) -> None:
        self._waiting: deque[Child] = deque()
        self._over: asyncio.TimerHandle | None = None

    def take(self, child: Child) -> None:
        """Give a child a turn, after the others'."""
        if child in self._waiting:
            return
        self._waiting.append(child)
        if len(self._waiting) == 1:
            self._begin()

    def end(self, child: Child) -> None:
        """End a child's turn, unless it was over before."""
        if self._waiting and self._waiting[0] is child:
            self._next()

    def leave(self, child: Child) -> None:
        """Forget a child."""
        self.end(child)
        if child in self._waiting:
            self._waiting.remove(child)

    def _begin(self) -> None:
        if self._over is not None:
            self._over.cancel()
            self._over = None
        if self._waiting:
            self._waiting[0].send(MayPing())
            self._over = asyncio.get_running_loop().call_later(_TURN_S, self._next)

    def _next(self) -> None:
        self._waiting.popleft()
        self._begin()
