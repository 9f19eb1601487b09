"""The connection to the parent: who takes this node, what it is told, when it is over.

connect, proofs --Hello--> Welcome | Refused       Ask, Notice --> the node       pings --> clock.py
a ping each interval, answered; silence means that the parent is lost

The ping goes with a report, if there is one in that interval: a parent of many takes both at once.
"""

from __future__ import annotations

import asyncio
import time

from .clock import ClockOffset
from .connection import Connection
from .messages import (
    PROTOCOL,
    Ask,
    Down,
    Hello,
    Member,
    Notice,
    Place,
    Pong,
    Refused,
    Report,
    Up,
    Welcome,
    encode,
)
from .node import Node

_NO_PROOF = "who listens there does not prove that it knows this job's token"

_CONNECT_S = 3.0
SILENCE_S = 6.0
"""After which a parent that says nothing is taken for lost; more where pings are rarer."""


class RefusedError(Exception):
    """Somebody listens there, but does not take this node."""


class Upward:
    """This node's parent, one after another; a ``Receiver``.

    What is known of a parent stays until there is another one.
    """

    def __init__(self, node: Node, offset: ClockOffset) -> None:
        self._node = node
        self._offset = offset
        self.connection: Connection | None = None
        self._welcomed: asyncio.Future[Welcome]
        self._over: asyncio.Future[str | None]
        self._welcome: Welcome | None = None
        self._interval_s = 1.0
        self._has_pinged = False
        """Whether a report has taken a ping along, in this interval."""
        self.is_first = False
        """Whether this is the first one of its host among the parent's children."""

    @property
    def member(self) -> Member | None:
        """The parent, or the last one."""
        return None if self._welcome is None else self._welcome.member

    @property
    def is_there(self) -> bool:
        """Whether there is a parent that has taken this node."""
        return self._welcome is not None and self.connection is not None

    @property
    def is_hub(self) -> bool:
        """Whether the parent is the hub."""
        return self.is_there and self._welcome is not None and self._welcome.is_hub

    @property
    def is_here(self) -> bool:
        """Whether there is a parent, on this host."""
        host_id = self._node.me.host_id
        return self.is_there and self.member is not None and self.member.host_id == host_id

    async def join(self, place: Place, token: bytes) -> None:
        """Become a child of whoever listens there.

        Raises ``OSError`` where nobody does, or nobody of this job; ``RefusedError`` where that is
        no parent for this.
        """
        loop = asyncio.get_running_loop()
        self._welcome, self._has_pinged = None, False
        self._welcomed, self._over = loop.create_future(), loop.create_future()
        hello = Hello(PROTOCOL, self._node.me)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await loop.create_connection(
                    lambda: Connection(self, token, self._node.clock, hello), *place
                )
                self._welcome = await self._welcomed
        except BaseException:
            self._break_off()
            raise
        self._offset.joined(self.send)
        self._node.joined_parent()

    async def stay(self) -> str | None:
        """Return once the parent is gone, what it said at the end; ``None`` where it did not."""
        while not self._over.done():
            await asyncio.wait([self._over], timeout=self._interval_s)
            connection = self.connection
            if connection is None:
                break
            if time.monotonic() - connection.heard_s > max(SILENCE_S, 3 * self._interval_s):
                self._break_off()
                break
            if not self._has_pinged:
                self._offset.ping(self.send)
            self._has_pinged = False
        return self._over.result() if self._over.done() else None

    def send(self, message: Up) -> None:
        """Send a message, or drop it where there is no parent."""
        connection = self.connection
        if connection is None or self._welcome is None:
            return
        if not isinstance(message, Report) or self._has_pinged:
            connection.send(message)
            return
        self._has_pinged, report = True, encode(message)
        # The ping first: it waits for no more than itself, here and there.
        self._offset.ping(lambda ping: connection.send_body(encode(ping), report))

    def opened(self, connection: Connection) -> None:
        """Keep it; who this is goes after the proofs."""
        self.connection = connection

    def received(self, connection: Connection, message: Down, arrived_ns: int) -> None:
        """Take a message of the parent."""
        if connection is not self.connection:
            return
        match message:
            case Pong():
                self._interval_s, self.is_first = message.interval_s, message.is_first
                self._offset.answered(message, arrived_ns)
            case Ask():
                self._node.spawn(self._node.answer_parent(message))
            case Notice():
                self._node.notice(message)
            case Welcome():
                if not self._welcomed.done():
                    self._welcomed.set_result(message)
            case Refused():
                if not self._welcomed.done():
                    self._welcomed.set_exception(RefusedError(message.why))

    def disconnected(self, connection: Connection) -> None:
        """Look for another parent."""
        if connection is not self.connection:
            return
        self.connection = None
        if not self._welcomed.done():
            why = "the connection ended" if connection.known else _NO_PROOF
            self._welcomed.set_exception(ConnectionError(why))
        if not self._over.done():
            self._over.set_result(connection.goodbye)

    def _break_off(self) -> None:
        connection, self.connection = self.connection, None
        self._welcomed.cancel()
        if connection is not None:
            connection.end("no parent any more")
