"""Who connects to a hub and is no rank, or one that does not keep to the rules."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.children import CONTROL
from hooktrace.ranks.channel.handshake import NONCE_BYTES, PROOF_BYTES, connect
from hooktrace.ranks.channel.messages import LENGTH, PROTOCOL, Hello, Member, Message, encode

DEADLINE_S = 10.0


def framed(message: Message) -> bytes:
    """Return a message as it is sent."""
    body = encode(message)
    return LENGTH.pack(len(body)) + body


class Stranger:
    """A connection to where ``hub`` listens; proves its token, or sends ``instead``."""

    def __init__(self, hub: Channel, instead: bytes | None = None) -> None:
        self.socket = socket.create_connection(hub.children.places[0], DEADLINE_S)
        self._handshake = connect(hub.children.token)
        next(self._handshake)
        nonce = self.socket.recv(NONCE_BYTES, socket.MSG_WAITALL)
        self.proof, _ = self._handshake.send(nonce)
        """What is right to send first."""
        if instead is None:
            self.send(self.proof)
            self.take_proof()
        else:
            self.send(instead)

    def take_proof(self) -> None:
        """Take the other side's proof, which must be right; nothing where it has let go."""
        with suppress(ConnectionError, StopIteration):
            proof = self.socket.recv(PROOF_BYTES, socket.MSG_WAITALL)
            if proof:
                self._handshake.send(proof)

    def hello(self, rank: int, *, protocol: int = PROTOCOL) -> Stranger:
        """Say that this is a rank."""
        return self.say(Hello(protocol, Member(rank, 0, "a host", "a host")))

    def control(self) -> Stranger:
        return self.hello(CONTROL)

    def say(self, message: Message) -> Stranger:
        self.send(framed(message))
        return self

    def send(self, data: bytes) -> None:
        """Send bytes, as many as the other side takes until it ends the connection."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            return

    def is_ended(self) -> bool:
        """Return whether the other side ends the connection, before the deadline."""
        end = time.monotonic() + DEADLINE_S
        self.socket.settimeout(DEADLINE_S)
        try:
            while time.monotonic() < end:
                if not self.socket.recv(1 << 20):
                    return True
        except ConnectionError:
            return True
        except TimeoutError:
            pass
        return False

    def is_closed_without_a_word(self) -> bool:
        """Return whether the other side ends the connection, and has said nothing before."""
        self.socket.settimeout(DEADLINE_S)
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True

    def is_open(self) -> bool:
        """Return whether the connection stands, and nothing has come."""
        self.socket.setblocking(False)
        try:
            self.socket.recv(1)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            self.socket.settimeout(DEADLINE_S)
        return False

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
