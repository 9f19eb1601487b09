"""The commands there are, and what a rank says of one.

Command --> Done of each rank --> CommandResult
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..channel.messages import Silent

Verb = Literal["status", "stacks", "detail", "probe", "pause", "resume", "flush"]

MOST_STEPS = 100_000
"""That one command may ask for."""

STACKS_AT_ONCE = 32
"""Ranks, the first ones, that tell their stacks where no rank is named: one answer has bounds."""
MOST_STACKS = 100_000
"""Bytes of one rank's."""

QUESTION = "control"
"""By which the hub asks ranks, and clients the hub."""


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


encode = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_done = msgspec.msgpack.Decoder(Done).decode
decode_result = msgspec.msgpack.Decoder(CommandResult).decode
