"""Letters that are typed at a terminal, one at a time."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_ONE = re.compile(rb"\x1b\[[\d;]*[~A-Za-z]|\x1bO[A-Z]|.", re.DOTALL)
"""What a terminal sends for one key."""
_QUIT = (b"\x1b", b"\x03", b"\x04")
"""Escape, Ctrl-C, Ctrl-D."""


def keys_of(data: bytes) -> list[str]:
    """Return the letters that a terminal sent, of which several may come at once."""
    sent = _ONE.findall(data)
    return ["q" if one in _QUIT else one.decode("ascii", "ignore").lower() for one in sent]


class Keys:
    """Letters that are typed at a terminal; without one there are none."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, timeout_s: float) -> list[str]:
        """Return what is typed next, none after a while; ``q`` where the terminal is gone."""
        asked = [] if self._descriptor is None else [self._descriptor]
        ready, _, _ = select.select(asked, [], [], timeout_s)
        return keys_of(os.read(ready[0], 64)) or ["q"] if ready else []


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
