"""A question to the hub from a terminal, over a connection of its own.

proofs of the token --> Hello, as nobody's rank --> Welcome | Goodbye       Ask --> Answered
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import IO

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


def send_command(address: HubAddress, command: Command) -> CommandResult:
    """Return what came of a command.  Raises ``UsageError`` as ``ask`` does."""
    answer = ask(address, QUESTION, encode(command))
    return msgspec.msgpack.decode(answer, type=CommandResult)


def ask(address: HubAddress, name: str, argument: bytes, timeout_s: float = 30.0) -> bytes:
    """Return the answer of the hub at ``address``.

    Raises ``UsageError`` where the hub is not there, refuses, has no answer, or is gone.
    """
    with _connected(address.places) as line, line.makefile("rwb") as file:
        _introduce(file, bytes.fromhex(address.token))
        try:
            line.settimeout(timeout_s)
            _send(file, Ask(0, name, argument, timeout_s))
            while not isinstance(message := _receive(file), Answered):
                pass
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(
                f"rank 0 did not answer ({error or type(error).__name__}); it may have "
                "ended, or be another version of hooktrace"
            ) from None
    if not message.answers:
        raise UsageError("; ".join(silent.why for silent in message.silent))
    return next(iter(message.answers.values()))


def _introduce(file: IO[bytes], token: bytes) -> None:
    """Be taken as a client.  Raises ``UsageError`` where the other side is no hub, or refuses."""
    try:
        _prove(file, token)
        _send(file, Hello(PROTOCOL, Member(CONTROL, os.getpid(), socket.gethostname()[:256], "")))
        said = _receive(file)
    except WrongTokenError:
        raise UsageError(_NO_PROOF) from None
    except ConnectionError:  # to a wrong token it says no word
        raise UsageError(_ENDED) from None
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"rank 0 did not answer ({error}); is it hung?") from None
    if isinstance(said, Goodbye):
        raise UsageError(f"rank 0 refuses: {said.why}; try again in a while")


def _prove(file: IO[bytes], token: bytes) -> None:
    handshake = connect(token)
    _, awaited = next(handshake)
    try:
        while True:
            answer, awaited = handshake.send(_read(file, awaited))
            file.write(answer)
            file.flush()
    except StopIteration:
        return


def _send(file: IO[bytes], message: Message) -> None:
    body = encode(message)
    file.write(LENGTH.pack(len(body)) + body)
    file.flush()


def _receive(file: IO[bytes]) -> Down:
    (length,) = LENGTH.unpack(_read(file, LENGTH.size))
    if length > MOST_BYTES:
        raise OSError("no hub of hooktrace's")
    message: Down = decode_down(_read(file, length))
    return message


def _read(file: IO[bytes], size: int) -> bytes:
    got = file.read(size)
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
