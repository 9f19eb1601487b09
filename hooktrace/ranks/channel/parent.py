"""The connection to the parent: who takes this node, what it is told, when it is over.

connect, proofs --Hello--> Welcome | Goodbye       Ask, Notice --> the node       pings --> clock.py
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from .connection import Connection
from .messages import (
    PROTOCOL,
    Ask,
    Down,
    Hello,
    Member,
    Message,
    Notice,
    Place,
    Pong,
    Report,
    Welcome,
    encode,
)

if TYPE_CHECKING:
    from .node import Node

_NO_PROOF = "who listens there does not prove that it knows this job's token"

_CONNECT_S = 3.0
SILENCE_S = 6.0
"""After which a parent that says nothing is taken for lost; more where pings are rarer."""


class Parent(Connection):
    """One that may take ``node``, and what is known of it: also once the connection is over.

    A ping goes each interval, with a report if there is one: a parent of many takes both at once.
    """

    def __init__(self, node: Node, token: bytes) -> None:
        super().__init__(token, node.clock, Hello(PROTOCOL, node.me))
        self._node = node
        loop = asyncio.get_running_loop()
        self._welcomed: asyncio.Future[Member] = loop.create_future()
        self._over: asyncio.Future[str | None] = loop.create_future()
        self._interval_s = 1.0
        self._has_pinged = False
        """Whether a report has taken a ping along, in this interval."""
        self.member: Member | None = None
        """Which rank it is, once it has taken this node."""
        self.is_first = False
        """Whether this is the first one of its host among the parent's children."""

    @property
    def is_there(self) -> bool:
        """Whether it has taken this node, and the connection stands."""
        return self.member is not None and not self._over.done()

    @property
    def is_here(self) -> bool:
        """Whether it is there, on this host."""
        member, host_id = self.member, self._node.me.host_id
        return self.is_there and member is not None and member.host_id == host_id

    async def join(self, place: Place) -> None:
        """Become a child of whoever listens there.

        Raises ``OSError`` where nobody of this job does, or does not take this node.
        """
        try:
            async with asyncio.timeout(_CONNECT_S):
                await asyncio.get_running_loop().create_connection(lambda: self, *place)
                self.member = await self._welcomed
        except BaseException:
            self._welcomed.cancel()
            self.end("no parent")
            raise
        self._node.joined_parent(self)

    async def stay(self) -> str | None:
        """Return once the parent is gone, what it said at the end; ``None`` where it did not."""
        while True:
            await asyncio.wait([self._over], timeout=self._interval_s)
            if self._over.done():
                return self._over.result()
            if time.monotonic() - self.heard_s > max(SILENCE_S, 3 * self._interval_s):
                self.end("no parent any more")
                return None
            if not self._has_pinged:
                self._node.offset.ping(self.send)
            self._has_pinged = False

    def send(self, message: Message) -> None:
        """Send a message; the first report of an interval takes its ping along."""
        if not isinstance(message, Report) or self._has_pinged:
            super().send(message)
            return
        self._has_pinged, report = True, encode(message)
        # The ping first: it waits for no more than itself, here and there.
        self._node.offset.ping(lambda ping: self.send_body(encode(ping), report))

    def received(self, message: Down, arrived_ns: int) -> None:
        """Take a message of the parent."""
        match message:
            case Pong():
                self._interval_s, self.is_first = message.interval_s, message.is_first
                self._node.offset.answered(message, arrived_ns)
            case Ask():
                self._node.spawn(self._node.answer_parent(message))
            case Notice():
                self._node.notice(message)
            case Welcome():
                if not self._welcomed.done():
                    self._welcomed.set_result(message.member)

    def disconnected(self) -> None:
        """Let another parent be looked for."""
        if not self._welcomed.done():
            why = (self.goodbye or "the connection ended") if self.known else _NO_PROOF
            self._welcomed.set_exception(ConnectionError(why))
        if not self._over.done():
            self._over.set_result(self.goodbye)
