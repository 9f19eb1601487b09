"""The connection to the parent: who takes this node, what it is told, when it is over.

connect, proofs --Hello--> Welcome | Refused       Ask, Notice --> the node       pings --> clock.py
a ping each interval, answered; silence means that the parent is lost

The ping goes with a report, if there is one in that interval: a parent of many takes both at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from .clock import ClockOffset
from .connection import Connection
from .messages import (
    PROTOCOL,
    Ask,
    Down,
    Hello,
    Member,
    Notice,
    Pace,
    Place,
    Pong,
    Refused,
    Report,
    Up,
    Welcome,
    decode_down,
    encode,
)
from .node import Node

_NO_PROOF = "who listens there does not prove that it knows this job's token"

_CONNECT_S = 3.0
SILENCE_S = 6.0
"""After which a parent that says nothing is taken for lost; more where beats are rarer."""


class RefusedError(Exception):
    """Somebody listens there, but does not take this node."""


class Upward:
    """This node's parent, one after another; a ``Receiver`` and the node's ``Parent``."""

    def __init__(self, node: Node, offset: ClockOffset) -> None:
        self._node = node
        self._offset = offset
        self._connection: Connection | None = None
        self._welcomed: asyncio.Future[Welcome] | None = None
        self._over: asyncio.Future[str | None] | None = None
        self._is_hubs = False
        self._has_beaten = False
        """Whether a report has taken a ping along, in this interval."""
        self.is_first = False
        """Whether the parent, or the last one, has no earlier child on this host."""
        self.member: Member | None = None
        """The parent, or the last one."""
        self._takes: dict[type, Callable[[Any, int], None]] = {
            Welcome: lambda welcome, _: self._welcome(welcome),
            Refused: lambda refused, _: self._refuse(refused),
            Pace: lambda pace, _: self._keep_pace(pace),
            Pong: offset.answered,
            Ask: lambda question, _: node.spawn(node.answer_parent(question)),
            Notice: lambda notice, _: node.notice(notice),
        }

    @property
    def is_there(self) -> bool:
        """Whether there is a parent that has taken this node."""
        return self.member is not None and self._connection is not None

    @property
    def is_hub(self) -> bool:
        """Whether the parent is the hub."""
        return self.is_there and self._is_hubs

    @property
    def is_here(self) -> bool:
        """Whether there is a parent, on this host."""
        here = self._node.me.host_id
        return self.is_there and self.member is not None and self.member.host_id == here

    async def join(self, place: Place, token: bytes) -> None:
        """Become a child of whoever listens there.

        Raises ``OSError`` where nobody does, or nobody of this job; ``RefusedError`` where that is
        no parent for this.
        """
        loop = asyncio.get_running_loop()
        self.member = None
        self._has_beaten = False
        self._over = loop.create_future()
        self._welcomed = loop.create_future()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, self._connection = await loop.create_connection(
                    lambda: Connection(self, token, decode_down, self._node.clock, incoming=False),
                    *place,
                )
                welcome = await self._welcomed
        except BaseException:
            self._break_off()
            raise
        self.member = welcome.member
        self._is_hubs = welcome.is_hub
        self.is_first = welcome.is_first
        self._node.interval_s = welcome.interval_s
        self._offset.joined(self.send)
        self._node.joined_parent()

    async def stay(self) -> str | None:
        """Return once the parent is gone, what it said at the end; ``None`` where it did not."""
        assert self._over is not None
        over = self._over
        while not over.done():
            interval_s = self._node.interval_s
            await asyncio.wait([over], timeout=interval_s)
            connection = self._connection
            if connection is None:
                break
            if time.monotonic() - connection.heard_s > max(SILENCE_S, 3 * interval_s):
                self._break_off()
                break
            if not self._has_beaten:
                self._offset.beat(self.send)
            self._has_beaten = False
        return over.result() if over.done() else None

    def send(self, message: Up) -> None:
        """Send a message, or drop it where there is no parent."""
        if self.is_there:
            assert self._connection is not None
            if isinstance(message, Report) and not self._has_beaten:
                self._report_and_beat(self._connection, encode(message))
            else:
                self._connection.send(message)

    def _report_and_beat(self, connection: Connection, report: bytes) -> None:
        self._has_beaten = True
        # The ping first: it waits for no more than itself, here and there.
        self._offset.beat(lambda ping: connection.send_body(encode(ping), report))

    def leave(self, why: str) -> None:
        """Say goodbye to the parent, if there is one."""
        for connection in self.connections():
            connection.leave(why)

    def connections(self) -> list[Connection]:
        """Return the connection to the parent, if there is one."""
        return [] if self._connection is None else [self._connection]

    def close_in_child(self) -> None:
        """In a forked child: let go of the descriptor."""
        if self._connection is not None:
            self._connection.close_in_child()

    def connected(self, connection: Connection) -> None:
        """Say who this is."""
        connection.send(Hello(PROTOCOL, self._node.me))

    def received(self, connection: Connection, message: Down, arrived_ns: int) -> None:
        """Take a message of the parent."""
        take = self._takes.get(type(message))
        if take is not None and connection is self._connection:
            take(message, arrived_ns)

    def disconnected(self, connection: Connection) -> None:
        """Look for another parent."""
        if connection is not self._connection:
            return
        self._connection = None
        if self._welcomed is not None and not self._welcomed.done():
            why = "the connection ended" if connection.known else _NO_PROOF
            self._welcomed.set_exception(ConnectionError(why))
        if self._over is not None and not self._over.done():
            self._over.set_result(connection.goodbye)

    def _break_off(self) -> None:
        connection, self._connection = self._connection, None
        if self._welcomed is not None:
            self._welcomed.cancel()
        if connection is not None:
            connection.end("no parent any more")

    def _welcome(self, welcome: Welcome) -> None:
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_result(welcome)
            return
        self.is_first = welcome.is_first

    def _keep_pace(self, pace: Pace) -> None:
        self._node.interval_s = pace.interval_s

    def _refuse(self, refused: Refused) -> None:
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(RefusedError(refused.why))
