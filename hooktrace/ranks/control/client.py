"""A client of the hub, for a terminal: one connection, one question after another.

proofs of the token --> Hello, as nobody's rank --> Welcome | Goodbye       Ask --> Answered
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterable

import msgspec

from ...records.errors import UsageError
from ..channel.handshake import WrongTokenError, connect
from ..channel.messages import (
    CONTROL,
    LENGTH,
    MOST_BYTES,
    PROTOCOL,
    Answered,
    Ask,
    Down,
    Goodbye,
    Hello,
    HubAddress,
    Member,
    Message,
    decode_down,
    encode,
)
from .commands import QUESTION, Command, CommandResult

_CONNECT_S = 5.0
_ENDED = (
    "rank 0 ended the connection: a wrong token, or the job ends; take the address and the "
    "token from the file that this job wrote"
)
_NO_PROOF = (
    "who answers there does not know the job's token: the job has ended, and another process has "
    "its port; take the address and the token of a job that runs"
)


class Client:
    """Connected to the hub at ``address``; to be closed.

    Raises ``UsageError`` where the hub is not there, or refuses.
    """

    def __init__(self, address: HubAddress) -> None:
        self._numbers = itertools.count()
        self._socket = _connected(address.places)
        self._file = self._socket.makefile("rb")
        try:
            self._prove(bytes.fromhex(address.token))
            me = Member(CONTROL, os.getpid(), socket.gethostname()[:256], "")
            self._send(Hello(PROTOCOL, me))
            said = self._receive()
        except (OSError, msgspec.DecodeError, WrongTokenError) as error:
            self.close()
            if isinstance(error, WrongTokenError):
                raise UsageError(_NO_PROOF) from None
            if isinstance(error, ConnectionError):  # to a wrong token it says no word
                raise UsageError(_ENDED) from None
            raise UsageError(f"rank 0 did not answer ({error}); is it hung?") from None
        if isinstance(said, Goodbye):
            self.close()
            raise UsageError(f"rank 0 refuses: {said.why}; try again in a while")

    def command(self, command: Command, timeout_s: float = 30.0) -> CommandResult:
        """Return what came of a command.  Raises ``UsageError`` as ``ask`` does."""
        answer = self.ask(QUESTION, encode(command), timeout_s)
        return msgspec.msgpack.decode(answer, type=CommandResult)

    def ask(self, name: str, argument: bytes, timeout_s: float = 30.0) -> bytes:
        """Return the hub's answer.

        Raises ``UsageError`` where it has none, cannot, or is gone.
        """
        number = next(self._numbers)
        try:
            self._socket.settimeout(timeout_s)
            self._send(Ask(number, name, argument, timeout_s))
            while True:
                message = self._receive()
                if isinstance(message, Answered) and message.number == number:
                    break
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(
                f"rank 0 did not answer ({error or type(error).__name__}); it may have "
                "ended, or be another version of hooktrace"
            ) from None
        if not message.answers:
            raise UsageError("; ".join(silent.why for silent in message.silent))
        return next(iter(message.answers.values()))

    def close(self) -> None:
        """Let go of the connection."""
        self._file.close()
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prove(self, token: bytes) -> None:
        handshake = connect(token)
        _, awaited = next(handshake)
        try:
            while True:
                answer, awaited = handshake.send(self._read(awaited))
                self._socket.sendall(answer)
        except StopIteration:
            return

    def _send(self, message: Message) -> None:
        body = encode(message)
        self._socket.sendall(LENGTH.pack(len(body)) + body)

    def _receive(self) -> Down:
        (length,) = LENGTH.unpack(self._read(LENGTH.size))
        if length > MOST_BYTES:
            raise OSError("no hub of hooktrace's")
        message: Down = decode_down(self._read(length))
        return message

    def _read(self, size: int) -> bytes:
        got = self._file.read(size)
        if len(got) < size:
            raise ConnectionError("the connection ended")
        return got


def _connected(places: Iterable[tuple[str, int]]) -> socket.socket:
    trouble: OSError | None = None
    for place in places:
        try:
            return socket.create_connection(place, timeout=_CONNECT_S)
        except ConnectionResetError:  # who refuses a connection does not reset one: it was taken
            raise UsageError(_ENDED) from None
        except OSError as error:
            trouble = error
    raise UsageError(
        f"nobody answers at {', '.join(f'{host} port {port}' for host, port in places) or 'all'} "
        f"({trouble}): the job has ended, or this host does not reach it"
    )
