"""The commands there are, what a rank says of one, and how the hub carries one out.

client's Command --> which step is each rank at? --> with ``first`` --> Done of each rank
                                                                    --> CommandResult
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from ..channel.messages import Silent, encode

if TYPE_CHECKING:
    from ..channel.node import Node

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
