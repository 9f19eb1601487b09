"""Rank 0's side of the clock comparison: a thread that answers pings with readings of its clock.

    connection --token--> pings: number --> answers: number, when it came, when it was answered

A thread that waits in a collective cannot be ended safely, so pings go over TCP connections of
their own and not over the process group.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any

from ..capture.clocks import Clock

__all__ = ["ANSWER", "PING", "THREAD_NAME", "ClockServer"]

PING, ANSWER = struct.Struct("<q"), struct.Struct("<qqq")
"""A ping is its number; an answer the number, then the server's clock at arrival and at answer."""

THREAD_NAME = "hooktrace-clock"

_TOKEN_BYTES = 16
_END_S = 0.5
_PAUSE_S = 1.0
_MOST_WITHOUT_TOKEN = 64
"""Connections that have not shown the token; of more, the oldest are closed."""


class ClockServer:
    """Answers pings on ``host`` with readings of ``clock``; ``address`` says where.

    A connection must begin with the token of ``address``, or it is closed.  Raises ``OSError``
    where it cannot listen.
    """

    def __init__(self, host: str, clock: Clock) -> None:
        self._clock = clock
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._listener = socket.create_server((host, 0), family=_family(host))
        self._listener.setblocking(False)
        self._paused_until: float | None = None
        self._end, self._told_to_end = socket.socketpair()
        self.address = f"{host} {self._listener.getsockname()[1]} {self._token.hex()}"
        self._thread = threading.Thread(target=self._serve, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close all connections."""
        with suppress(OSError):
            self._end.send(b".")
        self._thread.join(_END_S)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener, self._told_to_end, self._end:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._told_to_end, selectors.EVENT_READ)
            open_: dict[socket.socket, bytearray] = {}
            try:
                while True:
                    self._resume(selector)
                    for key, _ in selector.select(None if self._paused_until is None else _PAUSE_S):
                        now = self._clock()
                        if key.fileobj is self._told_to_end:
                            return
                        if key.fileobj is self._listener:
                            self._accept(selector, open_)
                        else:
                            self._answer(key.fileobj, now, selector, open_)
            finally:
                for connection in open_:
                    connection.close()

    def _accept(
        self, selector: selectors.BaseSelector, open_: dict[socket.socket, bytearray]
    ) -> None:
        try:
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            # The process may be out of file descriptors: the listener would be ready again at once.
            selector.unregister(self._listener)
            self._paused_until = time.monotonic() + _PAUSE_S
            return
        open_[connection] = bytearray()
        selector.register(connection, selectors.EVENT_READ)
        without_token = [c for c, got in open_.items() if len(got) < _TOKEN_BYTES]
        for silent in without_token[:-_MOST_WITHOUT_TOKEN]:
            self._drop(silent, selector, open_)

    def _resume(self, selector: selectors.BaseSelector) -> None:
        if self._paused_until is not None and time.monotonic() >= self._paused_until:
            self._paused_until = None
            selector.register(self._listener, selectors.EVENT_READ)

    @staticmethod
    def _drop(
        connection: socket.socket,
        selector: selectors.BaseSelector,
        open_: dict[socket.socket, bytearray],
    ) -> None:
        selector.unregister(connection)
        del open_[connection]
        connection.close()

    def _answer(
        self,
        connection: Any,
        now: int,
        selector: selectors.BaseSelector,
        open_: dict[socket.socket, bytearray],
    ) -> None:
        got = open_[connection]
        try:
            data = connection.recv(64)
            got += data
            is_good = data and self._token.startswith(bytes(got[:_TOKEN_BYTES]))
            while is_good and len(got) >= _TOKEN_BYTES + PING.size:
                (number,) = PING.unpack_from(got, _TOKEN_BYTES)
                del got[_TOKEN_BYTES : _TOKEN_BYTES + PING.size]
                connection.send(ANSWER.pack(number, now, self._clock()))
        except OSError:
            is_good = False
        if not is_good:
            self._drop(connection, selector, open_)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
