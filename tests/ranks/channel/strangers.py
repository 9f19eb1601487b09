"""Who connects to a hub and is no rank, or one that does not keep to the rules."""

from __future__ import annotations

import select
import socket
from contextlib import suppress

import pytest

from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.handshake import NONCE_BYTES, PROOF_BYTES, connect
from hooktrace.ranks.channel.messages import (
    LENGTH,
    PROTOCOL,
    Ask,
    Hello,
    Member,
    Message,
    Question,
    encode,
)

DEADLINE_S = 60.0
QUESTION = Question(PROTOCOL, Ask(0, "status", b"", 1.0))


def framed(message: Message) -> bytes:
    body = encode(message)
    return LENGTH.pack(len(body)) + body


class Stranger(socket.socket):
    """A connection to where ``hub`` listens; proves its token, or sends ``instead``."""

    def __init__(self, hub: Channel, instead: bytes | None = None) -> None:
        super().__init__()
        self.settimeout(DEADLINE_S)
        self.connect(hub.children.places[0])
        handshake = connect(hub.children.token)
        next(handshake)
        self.proof, _ = handshake.send(self.recv(NONCE_BYTES, socket.MSG_WAITALL))
        """What is right to send first."""
        self.say(self.proof if instead is None else instead)
        if instead is None:
            with pytest.raises(StopIteration) as done:
                handshake.send(self.recv(PROOF_BYTES, socket.MSG_WAITALL))
            assert done.value.value is not None

    def hello(self, rank: int, *, protocol: int = PROTOCOL) -> Stranger:
        return self.say(Hello(protocol, Member(rank, 0, "a host", "a host")))

    def asks(self) -> Stranger:
        return self.say(QUESTION)

    def say(self, said: Message | bytes) -> Stranger:
        """Send it, as much of it as the other side takes until it ends the connection."""
        with suppress(ConnectionError):
            self.sendall(said if isinstance(said, bytes) else framed(said))
        return self

    def heard(self) -> bytes:
        """Return what the other side says until it ends the connection."""
        said = bytearray()
        with suppress(ConnectionError):
            while piece := self.recv(1 << 20):
                said += piece
        return bytes(said)

    def is_open(self) -> bool:
        """Return whether the connection stands, and nothing has come."""
        return not select.select([self], [], [], 0)[0]

    def __enter__(self) -> Stranger:
        return self
