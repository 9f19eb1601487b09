"""Ports for servers that bind them seconds later: nobody else is given one of them meanwhile.

The system gives the ports of its own range to whoever asks, and to each connection: a child that
starts slowly may find its port taken.  These are below that range, and each process of
``pytest -n`` has its own.
"""

from __future__ import annotations

import os
import random
import socket

_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PROCESSES = 8
# Above those that Ray takes by itself, from 10002 and from 23000 on; below torchrun's 29400.
_OWN = range(24_100 + _PROCESS % _PROCESSES, 29_300, _PROCESSES)
_order = iter(random.SystemRandom().sample(_OWN, len(_OWN)))
# Between what Ray takes by itself.
_FIRST = 20_000 + 360 * (_PROCESS % _PROCESSES)
_THREES = range(_FIRST, _FIRST + 360, 3)
_order_of_threes = iter(random.SystemRandom().sample(_THREES, len(_THREES)))


def free_port() -> int:
    """Return a loopback port at which nobody listens; each only once."""
    for port in _order:
        if _is_free(port):
            return port
    raise RuntimeError(f"none of the ports {_OWN} is left")


def free_port_of_three() -> int:
    """Return a loopback port at which nobody listens, nor at the two after it; each only once."""
    for port in _order_of_threes:
        if all(map(_is_free, range(port, port + 3))):
            return port
    raise RuntimeError(f"none of the ports {_THREES} is left")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
