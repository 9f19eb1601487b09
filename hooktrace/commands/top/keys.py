"""Keys of a terminal, one at a time: letters as they are, others by name.

bytes of the terminal --keys_of--> "q", "up", "enter", ...
"""

from __future__ import annotations

import os
import re
import select
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"k": "up",
    b"j": "down",
    b"\r": "enter",
    b"\n": "enter",
    b"\x1b": "q",
    b"\x03": "q",
    b"\x04": "q",
}


_ONE = re.compile(rb"\x1b\[[\d;]*[~A-Za-z]|\x1bO[A-Z]|.", re.DOTALL)
"""What a terminal sends for one key."""


def keys_of(data: bytes) -> list[str]:
    """Return the keys that a terminal sent, of which several may come at once."""
    return [
        _NAMES.get(one) or one[:1].decode("ascii", "ignore").lower() for one in _ONE.findall(data)
    ]


class Keys:
    """Keys that are pressed at a terminal; without one there are none."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._typed: deque[str] = deque()

    def wait(self, timeout_s: float) -> str | None:
        """Return the next key, or ``None`` after a while; ``q`` where the terminal is gone."""
        if self._descriptor is None:
            select.select([], [], [], timeout_s)
            return None
        if self._typed:
            return self._typed.popleft()
        ready, _, _ = select.select([self._descriptor], [], [], timeout_s)
        if not ready:
            return None
        data = os.read(self._descriptor, 64)
        self._typed.extend(keys_of(data) if data else "q")
        return self._typed.popleft()


@contextmanager
def keys() -> Iterator[Keys]:
    """Have keys come one at a time, without Enter, and give the terminal back as it was."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
