"""Rank 0's side of the clock comparison: a thread that answers pings with readings of its clock.

    connection --token--> pings: number --> answers: number, when it came, when it was answered

A thread that waits in a collective cannot be ended safely, so pings go over TCP connections of
their own and not over the process group.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..capture.clocks import Clock

logger = logging.getLogger("hooktrace")

PING, ANSWER = struct.Struct("<q"), struct.Struct("<qqq")
"""A ping is its number; an answer the number, then the server's clock at arrival and at answer."""

THREAD_NAME = "hooktrace-clock"

_TOKEN_BYTES = 16
_END_S = 0.5
_MOST_WITHOUT_TOKEN = 64
"""Connections that have not shown the token; of more, the oldest are closed."""


class ClockServer:
    """Answers pings with readings of ``clock``.

    ``host``: asked in the server's thread for the address to listen at, since finding it may take
    a name server.  ``publish``: told there where it listens, as ``host port token``; a connection
    must begin with that token, or it is closed.
    """

    def __init__(
        self, host: Callable[[], str], clock: Clock, publish: Callable[[str], None]
    ) -> None:
        self.clock = clock
        self.token = secrets.token_bytes(_TOKEN_BYTES)
        self.connections: list[_Connection] = []
        self._host = host
        self._publish = publish
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close all connections."""
        with suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_END_S)

    def _run(self) -> None:
        # What a connection raises, or accepting one where the process has no file descriptors left.
        self._loop.set_exception_handler(lambda _, trouble: logger.debug("%s", trouble["message"]))
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # of sockets, of torch's store: none of training's business
            warn_of(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        host = self._host()
        server = await self._loop.create_server(lambda: _Connection(self), host)
        port = server.sockets[0].getsockname()[1]
        self._publish(f"{host} {port} {self.token.hex()}")
        await self._ended.wait()
        server.close()
        for connection in self.connections:
            connection.transport.abort()
        await asyncio.sleep(0)  # aborted connections are closed in the loop's next round


def warn_of(error: Exception) -> None:
    """Say what a clock that is not compared means."""
    logger.warning(
        "this rank's clock is not compared with the others' (%s: %s); a view of all ranks may be "
        "off by what their clocks are",
        type(error).__name__,
        error,
    )


class _Connection(asyncio.Protocol):
    """One connection: a token that must be right, and pings."""

    transport: Any

    def __init__(self, server: ClockServer) -> None:
        self._server = server
        self.received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        known = self._server.connections
        known.append(self)
        silent = [one for one in known if len(one.received) < _TOKEN_BYTES]
        for one in silent[:-_MOST_WITHOUT_TOKEN]:
            one.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        now = self._server.clock()
        received = self.received
        received += data
        if len(received) < _TOKEN_BYTES:
            return
        # All of it at once and in constant time: no answer may tell how much of a guess was right.
        if not hmac.compare_digest(received[:_TOKEN_BYTES], self._server.token):
            self.transport.abort()
            return
        while len(received) >= _TOKEN_BYTES + PING.size:
            (number,) = PING.unpack_from(received, _TOKEN_BYTES)
            del received[_TOKEN_BYTES : _TOKEN_BYTES + PING.size]
            self.transport.write(ANSWER.pack(number, now, self._server.clock()))
