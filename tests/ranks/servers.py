"""A clock server whose clock is wrong on purpose."""

from __future__ import annotations

import queue
import socket
import time

from hooktrace.ranks.clock_server import ClockServer

S = 1_000_000_000


class Server:
    """A server whose clock is ahead of this host's by some ns."""

    def __init__(self, ahead_ns: int = 0) -> None:
        self.ahead_ns = ahead_ns
        published: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.server = ClockServer(
            lambda: "127.0.0.1", lambda: time.perf_counter_ns() + self.ahead_ns, published.put
        )
        self.address = published.get(timeout=20)

    def connect(self, token: str | None = None) -> socket.socket:
        """Return a connection on which pings may be sent."""
        host, port, own = self.address.split()
        connection = socket.create_connection((host, int(port)), timeout=5)
        connection.sendall(bytes.fromhex(own if token is None else token))
        return connection
