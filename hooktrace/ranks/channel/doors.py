"""Where this node listens: a server for each address, and not more than it needs.

open(hosts) --> servers --Connection--> children
"""

from __future__ import annotations

import asyncio
import socket

from ...staging.calls import Clock
from .children import Children
from .connection import Connection, close_descriptor
from .messages import Place

_AT_ONCE = 16
"""Connections taken in one go of the loop: unauthenticated ones by the thousand do not
hold it up."""
_WAITING = 1024
"""Connections that the kernel holds meanwhile: all hosts of a large job come at once."""


class Doors:
    """The servers of a node, on ports that the system chooses."""

    def __init__(self, children: Children, clock: Clock, token: bytes) -> None:
        self.token = token
        self._children = children
        self._clock = clock
        self._servers: dict[Place, asyncio.Server] = {}

    @property
    def places(self) -> tuple[Place, ...]:
        """Where it listens."""
        return tuple(self._servers)

    async def open(self, host: str) -> Place:
        """Listen at one more address of this host, and return where.  Raises ``OSError``."""
        known = next((place for place in self._servers if place[0] == host), None)
        if known is not None:
            return known
        server = await self._listen(host)
        place = host, int(server.sockets[0].getsockname()[1])
        self._servers[place] = server
        return place

    def shut(self, place: Place) -> None:
        """Listen there no more."""
        self._servers.pop(place).close()

    def close(self) -> None:
        """Listen nowhere."""
        for place in self.places:
            self.shut(place)

    def close_in_child(self) -> None:
        """In a forked child: let go of the descriptors."""
        for listener in [one for server in self._servers.values() for one in server.sockets]:
            close_descriptor(listener.fileno())

    async def _listen(self, host: str) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind(address)
            server = await loop.create_server(self._connection, sock=listener, backlog=_AT_ONCE)
            listener.listen(_WAITING)
        except BaseException:
            listener.close()
            raise
        return server

    def _connection(self) -> Connection:
        return Connection(self._children, self.token, self._clock)
