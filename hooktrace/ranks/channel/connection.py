"""One connection of the channel: proofs of the token, then messages of bounded size.

    bytes --handshake.py, once--> length, message, length, message, ... --decode--> receiver

What is not a message, is too long, comes too fast, or is not taken off by the other side, ends
the connection, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from .handshake import connect, listen
from .messages import (
    LENGTH,
    MOST_BYTES,
    Goodbye,
    Hello,
    Message,
    Question,
    decode_down,
    decode_up,
    encode,
)

if TYPE_CHECKING:
    from ...staging.calls import Clock

logger = logging.getLogger("hooktrace")

_MOST_UNREAD = 4 * MOST_BYTES
"""Bytes that wait for the other side; a slow reader is let go of, it would fill the memory."""

_PER_SECOND = 5_000
"""Messages, over a few seconds; a burst of pings is a few dozen."""
_PATIENCE_S = 4.0


class Connection(asyncio.Protocol):
    """One end.  ``hello``: what the side that connected says first; ``None`` on the other side."""

    transport: Any = None

    def __init__(self, token: bytes, clock: Clock, hello: Hello | Question | None = None) -> None:
        self._hello = hello
        self._handshake = listen(token) if hello is None else connect(token)
        self._awaited = 0
        self._decode = decode_up if hello is None else decode_down
        self._clock = clock
        self.known = False
        """Whether the other side proved that it knows the token."""
        self.goodbye: str | None = None
        """What the other side said at its end."""
        self.ending = False
        """Whether this side said it."""
        self._is_broken_off = False
        self.heard_s = time.monotonic()
        self._buffer = bytearray()
        self._allowance = _PER_SECOND * _PATIENCE_S

    def received(self, message: Any, arrived_ns: int) -> None:
        """Take a message; ``arrived_ns``: of the clock, when its last bytes came."""
        raise NotImplementedError

    def disconnected(self) -> None:
        """Take note that the connection is over."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = transport
        opening, self._awaited = next(self._handshake)
        self.transport.write(opening)

    def connection_lost(self, exc: Exception | None) -> None:
        """Hear the rest, and say that it is over."""
        try:
            if self.known and isinstance(exc, OSError) and self.goodbye is None and not self.ending:
                self._hear_rest()
        finally:
            self.disconnected()

    def _hear_rest(self) -> None:
        """Hand on what nobody has read: what all are told of a hang, a goodbye.

        Whoever leaves while this side sends resets the connection, and to send to it fails before
        its last words were read.
        """
        raw = self.transport.get_extra_info("socket")
        with suppress(OSError):  # all was read
            while len(self._buffer) < _MOST_UNREAD and (data := os.read(raw.fileno(), MOST_BYTES)):
                self._buffer += data
        self._take_all(self._clock())

    def data_received(self, data: bytes) -> None:
        """Take proofs, and whole messages."""
        arrived = self._clock()
        self._buffer += data
        if self.known or self._is_proved():
            self._take_all(arrived)

    def _take_all(self, arrived: int) -> None:
        data, start = self._buffer, 0
        while len(data) - start >= LENGTH.size and not (self._is_broken_off or self.ending):
            (length,) = LENGTH.unpack_from(data, start)
            if length > MOST_BYTES:
                self.end(f"a message of {length} bytes")
                break
            end = start + LENGTH.size + length
            if len(data) < end:
                break
            self._take(bytes(data[end - length : end]), arrived)
            start = end
        del data[:start]

    def _is_proved(self) -> bool:
        """Go on with the proofs; returns whether both are there and right."""
        while len(self._buffer) >= self._awaited:
            part = bytes(self._buffer[: self._awaited])
            del self._buffer[: self._awaited]
            try:
                answer, self._awaited = self._handshake.send(part)
                self.transport.write(answer)
            except StopIteration as done:
                if done.value is None:
                    self.transport.abort()  # without a word
                    return False
                self.transport.write(done.value)
                self.known = True
                if self._hello is not None:
                    self.send(self._hello)
                return True
        return False

    def _take(self, body: bytes, arrived: int) -> None:
        now = time.monotonic()
        earned = (now - self.heard_s) * _PER_SECOND
        self._allowance = min(self._allowance + earned, _PER_SECOND * _PATIENCE_S) - 1
        self.heard_s = now
        if self._allowance < 0:
            self.end("too many messages")
            return
        try:
            message = self._decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            self.end(f"no message: {error}")
            return
        if isinstance(message, Goodbye):
            self.goodbye = message.why
        self.received(message, arrived)

    def send(self, message: Message) -> None:
        """Send a message."""
        self.send_body(encode(message))

    def send_body(self, *bodies: bytes) -> None:
        """Send what ``encode`` made of messages, or let go of a side that does not read."""
        if self.transport.is_closing():
            return
        too_long = max(map(len, bodies))
        if too_long > MOST_BYTES:
            logger.debug("a message of %d bytes is too long for the channel", too_long)
            return
        self.transport.write(b"".join([LENGTH.pack(len(body)) + body for body in bodies]))
        if self.transport.get_write_buffer_size() > _MOST_UNREAD:
            self.end("it does not read")

    def end(self, why: str) -> None:
        """Break the connection off, if it has begun."""
        logger.debug("a connection of the channel is ended: %s", why)
        self._is_broken_off = True
        if self.transport is not None:
            self.transport.abort()

    def leave(self, why: str = "") -> None:
        """Say goodbye and close; to who has not proved the token not a word."""
        if not self.known:
            self.transport.abort()
        elif not self.transport.is_closing():
            self.ending = True
            self.send(Goodbye(why))
            self.transport.close()
