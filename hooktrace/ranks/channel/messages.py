"""What nodes of the channel say to each other: msgspec Structs, one union for each direction.

    Hello, Members, Ping, Report, ... child --> parent        decode_up
    Welcome, Pong, Ask, Notice, ...   parent --> child        decode_down

A message is data: nothing of it is executed, imported or unpickled.  ``name`` says whose it is
among the users of the channel (hangs, control, the job's view), ``payload`` is theirs.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

PROTOCOL = 12
"""Nodes of another number do not talk to each other: hooktrace differs between hosts."""

HUB_GONE = "hub.gone"
"""The notice of a rank, to itself and those below, that the hub is not reached: a ``Silent``."""

MOST_BYTES = 8 << 20
"""Of one message."""

Name = Annotated[str, Meta(max_length=64)]
Text = Annotated[str, Meta(max_length=1024)]
MOST_PAYLOAD = 4 << 20
Payload = Annotated[bytes, Meta(max_length=MOST_PAYLOAD)]
Rank = Annotated[int, Meta(ge=0, le=1 << 31)]
Place = tuple[Text, int]
"""A host's address and a port."""

State = Literal["running", "stopped", "gone", "ended", "unreachable", "unknown"]
"""Of a process that does not answer, as its host tells it.  ``stopped``: by a signal, as SIGSTOP.
``ended``: it has left the channel in order.  ``unreachable``: nobody on its host answers."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Member(_Message, frozen=True):
    """A rank of the job: ``host`` is a name for people, ``host_id`` the same on one host only.

    ``began``: clock ticks from the host's start to the process's, since numbers are used again;
    ``pids``: the numbering that ``pid`` is of.  Both are 0 where the system does not tell.
    """

    rank: Rank
    pid: int
    host: Text
    host_id: Text
    began: int = 0
    pids: int = 0


class HubAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where the hub is: in the job's store, and in a file beside its records.

    ``places``: host and port of each address; ``token``: in hexadecimal digits; ``member``: the
    hub's process, of pid 0 where that is not known.
    """

    places: tuple[Place, ...]
    token: str
    member: Member = Member(0, 0, "", "")


class Silent(_Message, frozen=True):
    """A rank that did not answer; ``why``: what is known beyond its ``state``."""

    member: Member
    state: State
    why: Text = ""

    @property
    def rank(self) -> int:
        """Which one."""
        return self.member.rank


def unheard(rank: int) -> Silent:
    """Return that a rank did not answer of which nothing else is known."""
    return Silent(Member(rank, 0, "", ""), "unknown")


class Hello(_Message, frozen=True, tag="hello"):
    """The first message of a child: who it is."""

    protocol: int
    member: Member


class Members(_Message, frozen=True, tag="members"):
    """Who came and went below a child; ``in_order``: those who are gone said so."""

    joined: tuple[Member, ...] = ()
    gone: tuple[Rank, ...] = ()
    in_order: bool = False


class Ping(_Message, frozen=True, tag="ping"):
    """Says that a child is there, at ``sent_ns`` of its clock, and asks what time it is."""

    sent_ns: int


class Pong(_Message, frozen=True, tag="pong"):
    """When the ping was sent, ns of the child's clock; it came and this went, of the parent's.

    ``offset_ns``, ``uncertainty_ns``: of that clock to rank 0's; ``None`` while it is not known.
    ``interval_s``: between two pings from now on.  ``is_first``: the child is the first one of its
    host among the parent's.
    """

    sent_ns: int
    arrived_ns: int
    answered_ns: int
    offset_ns: int | None
    uncertainty_ns: int
    interval_s: float = 1.0
    is_first: bool = False


class Ask(_Message, frozen=True, tag="ask"):
    """A question to everybody below."""

    number: int
    name: Name
    argument: Payload
    timeout_s: float


class Question(_Message, frozen=True, tag="question"):
    """The only message of a client, which is no rank: what it asks the hub."""

    protocol: int
    ask: Ask


class Answered(_Message, frozen=True, tag="answered"):
    """The answers of a child and all below it."""

    number: int
    answers: dict[int, Payload]
    silent: tuple[Silent, ...] = ()


class Report(_Message, frozen=True, tag="report"):
    """News for the hub."""

    name: Name
    rank: Rank
    payload: Payload


class Notice(_Message, frozen=True, tag="notice"):
    """News for all ranks."""

    name: Name
    payload: Payload


class Welcome(_Message, frozen=True, tag="welcome"):
    """A parent takes a child; ``member``: who the parent is."""

    member: Member


class Goodbye(_Message, frozen=True, tag="goodbye"):
    """The end of this connection was meant; before a ``Welcome``, this child is not taken."""

    why: Text = ""


Up = Hello | Question | Members | Ping | Answered | Report | Goodbye
Down = Welcome | Pong | Ask | Answered | Notice | Goodbye

Message = Up | Down

LENGTH = struct.Struct("<I")
"""Stands before each message."""

encode = msgspec.msgpack.Encoder().encode
decode_up = msgspec.msgpack.Decoder(Up).decode
decode_down = msgspec.msgpack.Decoder(Down).decode
