"""Control of a job while it runs: a command to all ranks, and what each of them says of it.

    channel.json, beside the records --read_address--> where the hub is, and its token
    hooktrace ctl, tracer.command --Command--> the hub: which step is each rank at?
        --with ``first``--> all ranks --Done of each--> the hub --CommandResult--> who asked

A terminal's connection is its own: proofs of the token --> Question --> Welcome, Answered, or
Goodbye.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from ..records.errors import UsageError
from ..records.files import record_path
from .channel.connection import Connection
from .channel.messages import (
    PROTOCOL,
    Answered,
    Ask,
    Down,
    Goodbye,
    HubAddress,
    Question,
    Silent,
    encode,
)
from .native_calls import result_aside

if TYPE_CHECKING:
    from .channel.node import Node

Verb = Literal["status", "stacks", "detail", "probe", "pause", "resume", "flush"]

MOST_STEPS = 100_000
"""That one command may ask for."""

STACKS_AT_ONCE = 32
"""Ranks, the first ones, that tell their stacks where no rank is named: one answer has bounds."""
MOST_STACKS = 100_000
"""Bytes of one rank's."""

QUESTION = "control"
"""By which the hub asks ranks, and clients the hub."""

_TIMEOUT_S = 1.2
_WHERE_S = 0.3
"""For each of two questions before: with what follows, less than two seconds."""
_FLUSH_S = 20.0

FROM_ONE_STEP = ("detail", "probe")
"""Commands that all ranks begin at the same step."""

_AHEAD = 8
"""Steps from the foremost rank's on, and as many as a rank made while it was asked."""

_CONNECT_S = 5.0
_ENDED = (
    "there is no connection to rank 0: it refused the token, the job ends, or another process has "
    "its port; take the address and the token from the file that this job wrote"
)

_NAME = "channel.json"


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``number``: of steps.  ``first``: step by model, from which on.

    ``rank``: whose stacks are wanted; -1 for those of ``STACKS_AT_ONCE`` ranks.
    """

    verb: Verb
    number: Annotated[int, Meta(ge=0, le=MOST_STEPS)] = 0
    rank: Annotated[int, Meta(ge=-1)] = -1
    first: dict[str, int] = {}


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one rank did.  ``text``: for people.  ``steps``: by model, the last one that began.

    ``trouble``: why it could not, if so.
    """

    text: str = ""
    steps: dict[str, int] = {}
    trouble: str = ""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What came of a command: by rank what was done, and who did not answer."""

    ranks: dict[int, Done]
    silent: list[Silent] = []


decode_command = msgspec.msgpack.Decoder(Command).decode
decode_done = msgspec.msgpack.Decoder(Done).decode


async def carry_out(node: Node, argument: bytes) -> bytes:
    """Return the ``CommandResult`` of a ``Command``, both encoded; ``node`` is the hub's.

    Raises ``msgspec.DecodeError`` for what is none.
    """
    command = decode_command(argument)
    if command.verb in FROM_ONE_STEP:
        before = await _ask(node, Command(verb="status"), _WHERE_S)
        after = await _ask(node, Command(verb="status"), _WHERE_S)
        command = msgspec.structs.replace(command, first=first_steps(before, after))
    timeout_s = _FLUSH_S if command.verb == "flush" else _TIMEOUT_S
    return encode(await _ask(node, command, timeout_s))


async def _ask(node: Node, command: Command, timeout_s: float) -> CommandResult:
    found = (await node.gather(QUESTION, encode(command), timeout_s)).decoded(decode_done)
    return CommandResult(
        ranks=dict(sorted(found.answers.items())),
        silent=[silent for _, silent in sorted(found.silent.items())],
    )


def first_steps(before: CommandResult, after: CommandResult) -> dict[str, int]:
    """Return by model the step from which on a command can hold on all ranks.

    As far ahead as ranks get while they are asked twice: the command takes as long.
    """
    then, now = _foremost(before.ranks.values()), _foremost(after.ranks.values())
    return {
        model: step + 2 * (step - then.get(model, step)) + _AHEAD for model, step in now.items()
    }


def _foremost(ranks: Iterable[Done]) -> dict[str, int]:
    found: dict[str, int] = {}
    for done in ranks:
        for model, step in done.steps.items():
            found[model] = max(step, found.get(model, step))
    return found


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


def address_path(run: str | os.PathLike[str]) -> Path:
    """Return where the file of a run's directory is."""
    return record_path(run, 0).parent / _NAME


def write_address(run: Path, address: HubAddress) -> None:
    """Write the file, readable by its owner only, in one move.  Raises ``OSError``."""
    path = address_path(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(prefix=f"{_NAME}.", dir=path.parent, delete=False) as file:
        file.write(msgspec.json.encode(address))
    Path(file.name).replace(path)


def remove_address(run: Path) -> None:
    """Remove the file, if it is this process's."""
    with suppress(OSError, msgspec.DecodeError):
        path = address_path(run)
        if msgspec.json.decode(path.read_bytes(), type=HubAddress).member.pid == os.getpid():
            path.unlink()


def read_address(run: str | os.PathLike[str]) -> HubAddress:
    """Return where a run's hub is.  Raises ``UsageError`` where the file does not say."""
    path = address_path(run)
    try:
        return msgspec.json.decode(path.read_bytes(), type=HubAddress)
    except FileNotFoundError:
        raise UsageError(
            f"{path} is not there: the job has ended, or rank 0 writes no records there; pass the "
            "directory of its RecordFileExporter, or --connect"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}); ask as the user whose job it is, or pass --connect"
        ) from None
