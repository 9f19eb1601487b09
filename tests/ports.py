"""Ports for servers that bind them seconds later: nobody else is given one of them meanwhile.

They are below the range of the system's own.  Whoever is given one holds the UDP port of the same
number until its process ends, so that no other test gets it, of whatever run.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# Above those that Ray takes by itself, from 10002 and from 23000 on; below torchrun's 29400.
_PORTS = range(24_100, 29_300)
_LOOPBACK = "127.0.0.1"
_random = random.SystemRandom()
_held: list[ExitStack] = []


def free_port() -> int:
    """Return a loopback port at which nobody listens; each only once."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of so many loopback ports in a row, as ``free_port`` returns one."""
    firsts = range(_PORTS.start, _PORTS.stop - count + 1)
    for first in _random.sample(firsts, len(firsts)):
        with ExitStack() as stack:
            if all(_is_mine(port, stack) for port in range(first, first + count)):
                _held.append(stack.pop_all())
                return first
    raise RuntimeError(f"no {count} ports in a row are left of {_PORTS}")


def _is_mine(port: int, stack: ExitStack) -> bool:
    """Return whether a port was free; then it is held by a socket in ``stack``."""
    held = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
    with socket.socket() as probe:
        try:
            held.bind((_LOOPBACK, port))
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
        return True
