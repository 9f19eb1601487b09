"""A question to the hub from a terminal, over a connection of its own.

proofs of the token --> Question --> Welcome, Answered | Goodbye
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec

from ...records.errors import UsageError
from ..channel.connection import Connection
from ..channel.messages import (
    PROTOCOL,
    Answered,
    Ask,
    Down,
    Goodbye,
    HubAddress,
    Question,
    encode,
)
from ..native_calls import result_aside
from .commands import QUESTION, Command, CommandResult

_CONNECT_S = 5.0
_ENDED = (
    "there is no connection to rank 0: it refused the token, the job ends, or another process has "
    "its port; take the address and the token from the file that this job wrote"
)


def send_command(address: HubAddress, command: Command) -> CommandResult:
    """Return what came of a command.  Raises ``UsageError`` as ``ask`` does."""
    answer = ask(address, QUESTION, encode(command))
    return msgspec.msgpack.decode(answer, type=CommandResult)


def ask(address: HubAddress, name: str, argument: bytes, timeout_s: float = 30.0) -> bytes:
    """Return the answer of the hub at ``address``.

    Raises ``UsageError`` where the hub is not there, refuses, has no answer, or is gone.
    """
    question = Ask(0, name, argument, timeout_s)
    # On a thread of its own, since this one may run a loop, as a notebook's does.
    asked = result_aside(lambda: asyncio.run(_answer(address, question)), "hooktrace-ask")
    answered = asked.result()
    if not answered.answers:
        raise UsageError("; ".join(silent.why for silent in answered.silent))
    return next(iter(answered.answers.values()))


class _Client(Connection):
    """Nobody's rank.  ``heard``: what the hub says, and ``None`` when the connection is over."""

    def __init__(self, token: bytes, question: Ask) -> None:
        super().__init__(token, time.perf_counter_ns, Question(PROTOCOL, question))
        self.heard: asyncio.Queue[Down | None] = asyncio.Queue()

    def received(self, message: Down, arrived_ns: int) -> None:
        """Keep a message."""
        self.heard.put_nowait(message)

    def disconnected(self) -> None:
        """Say that no more comes."""
        self.heard.put_nowait(None)


async def _answer(address: HubAddress, question: Ask) -> Answered:
    client = await _connected(address, question)
    try:
        async with asyncio.timeout(_CONNECT_S):
            said = await client.heard.get()
        if said is None:  # to a wrong token it says no word
            raise UsageError(_ENDED)
        if isinstance(said, Goodbye):
            raise UsageError(f"rank 0 refuses: {said.why}; try again in a while")
        async with asyncio.timeout(question.timeout_s):
            while not isinstance(said := await client.heard.get(), Answered | None):
                pass
    except TimeoutError:
        raise UsageError("rank 0 did not answer in time; is it hung?") from None
    finally:
        client.end("all is asked")
    if said is None:
        raise UsageError(
            "rank 0 did not answer; it may have ended, or be another version of hooktrace"
        )
    return said


async def _connected(address: HubAddress, question: Ask) -> _Client:
    connect = asyncio.get_running_loop().create_connection
    made = partial(_Client, bytes.fromhex(address.token), question)
    trouble = "no address"
    for place in address.places:
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, client = await connect(made, *place)
        except ConnectionResetError:  # who refuses a connection does not reset one: it was taken
            raise UsageError(_ENDED) from None
        except OSError as error:
            trouble = str(error) or "no answer in time"
        else:
            return client
    places = ", ".join(f"{host} port {port}" for host, port in address.places)
    raise UsageError(
        f"nobody answers at {places or 'all'} ({trouble}): the job has ended, or this host does "
        "not reach it"
    )
