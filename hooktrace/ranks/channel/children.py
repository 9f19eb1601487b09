"""Those who connect to this node: who they are, what they are asked, what time it is.

Hello --> Welcome           Members, Report --> the node
Ask --> ... --> Answered    Ping --> Pong
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...records.last_used import Bounded
from .connection import Connection
from .handshake import TOKEN_BYTES
from .messages import (
    PROTOCOL,
    Answered,
    Ask,
    Down,
    Goodbye,
    Hello,
    Member,
    Members,
    Ping,
    Place,
    Pong,
    Question,
    Report,
    Up,
    Welcome,
    encode,
)

if TYPE_CHECKING:
    from .node import Node

_MOST_CLIENTS = 32
_OTHER_VERSION = "another version of hooktrace"

_MOST_STRANGERS = 64
"""Connections whose other side has not said who it is; of more, the oldest must go."""

LEAST_INTERVAL_S = 1.0
"""Between two pings of a child."""
_CHILDREN_A_SECOND = 125
"""Of more children each one pings less often."""


class Child(Connection):
    """One connection from below, which stands for a rank and those below it."""

    def __init__(self, all_of_them: Children) -> None:
        super().__init__(all_of_them.token, all_of_them.above.clock)
        self._all = all_of_them
        self.member: Member | None = None
        self.asked: dict[int, asyncio.Future[Answered]] = {}
        """By number, the answers that are awaited."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and wait for its hello."""
        self._all.opened(self)
        super().connection_made(transport)

    def ask(self, number: int, body: bytes) -> asyncio.Future[Answered]:
        """Ask; the answer is cancelled where the connection ends before."""
        future = self.asked[number] = asyncio.get_running_loop().create_future()
        self.send_body(body)
        return future

    def received(self, message: Up, arrived_ns: int) -> None:
        """Take a message; whoever has not said hello says nothing else, and a client once only."""
        is_rank = self.member is not None
        match message:
            case Ping() if is_rank:
                self._all.pinged(self, message, arrived_ns)
            case Report() if is_rank:
                self._all.above.reported(message)
            case Answered() if is_rank:
                if awaited := self.asked.pop(message.number, None):  # or it comes too late
                    awaited.set_result(message)
            case Members() if is_rank:
                self._all.changed(self, message)
            case Hello() if self in self._all.strangers:
                self._all.greeted(self, message)
            case Question() if self in self._all.strangers:
                self._all.questioned(self, message)
            case Goodbye():
                pass  # its end says the rest
            case _:
                self.end("out of turn")

    def disconnected(self) -> None:
        """Say of all below how they went."""
        for awaited in self.asked.values():
            awaited.cancel()
        self._all.left(self)
        ranks = tuple(self._all.below({self}))
        if ranks and not self.ending:
            self._all.changed(self, Members(gone=ranks, in_order=self.goodbye is not None))


class Children:
    """The children of a node, and where it listens for them."""

    def __init__(self, above: Node) -> None:
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self.above = above
        self._servers: dict[Place, asyncio.Server] = {}
        self.strangers: Bounded[Child, Child] = Bounded(_MOST_STRANGERS)
        """Who has not said what it is."""
        self._clients: set[Child] = set()
        self._ranks: dict[Child, None] = {}
        self._of_rank: dict[int, Child] = {}
        self._firsts: dict[str, Child] = {}
        """One child of each host, which is told so."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Where it listens."""
        return tuple(self._servers)

    async def open(self, host: str) -> Place:
        """Listen at one more address of this host, and return where.  Raises ``OSError``."""
        known = next((place for place in self._servers if place[0] == host), None)
        if known is not None:
            return known
        server = await asyncio.get_running_loop().create_server(
            lambda: Child(self), host, 0, backlog=1024
        )  # all hosts of a large job come at once
        place = host, int(server.sockets[0].getsockname()[1])
        self._servers[place] = server
        return place

    def shut(self, place: Place) -> None:
        """Listen there no more."""
        self._servers.pop(place).close()

    def close(self) -> None:
        """Listen nowhere."""
        for place in self.places:
            self.shut(place)

    def connections(self) -> list[Child]:
        """Return all connections from below."""
        return [*self.strangers, *self._clients, *self._ranks]

    def below(self, children: set[Child]) -> list[int]:
        """Return the ranks that some children stand for, their own too."""
        return [rank for rank, child in self._of_rank.items() if child in children]

    def send(self, message: Down) -> None:
        """Send a message to all."""
        body = encode(message)
        for child in list(self._ranks):
            child.send_body(body)

    def opened(self, child: Child) -> None:
        """Keep one that has not said who it is, as long as there are not too many of these."""
        oldest = self.strangers.put(child, child)
        if oldest is not None:
            oldest.transport.abort()

    def left(self, child: Child) -> None:
        """Let go of one whose connection is over."""
        self.strangers.pop(child, None)
        self._clients.discard(child)
        self._ranks.pop(child, None)
        if child.member is not None and self._firsts.get(child.member.host_id) is child:
            del self._firsts[child.member.host_id]

    def greeted(self, child: Child, hello: Hello) -> None:
        """Take a child, or refuse it."""
        if hello.protocol != PROTOCOL:
            child.leave(_OTHER_VERSION)
        elif not self._may_be_below(hello.member):
            child.leave("no rank of this job")
        else:
            child.member = hello.member
            self.strangers.pop(child, None)
            self._ranks[child] = None
            child.send(Welcome(self.above.me))
            self.changed(child, Members(joined=(hello.member,)))

    def questioned(self, client: Child, question: Question) -> None:
        """Have a client's question answered, or refuse it."""
        handlers = self.above.control_handlers
        if question.protocol != PROTOCOL or question.ask.name not in handlers:
            client.leave(_OTHER_VERSION)
        elif not self.above.is_hub:
            client.leave("this is not the hub")
        elif len(self._clients) >= _MOST_CLIENTS:
            client.leave("too many clients")
        else:
            self.strangers.pop(client, None)
            self._clients.add(client)
            client.send(Welcome(self.above.me))
            self.above.spawn(self.above.answer_client(client, question.ask))

    def _may_be_below(self, member: Member) -> bool:
        return 0 <= member.rank < self.above.world_size and member.rank != self.above.rank

    def changed(self, child: Child, change: Members) -> None:
        """Take note of who came and went below a child."""
        if not all(map(self._may_be_below, change.joined)):
            child.end("no ranks of this job")
            return
        known = {self._of_rank.get(member.rank, child) for member in change.joined}
        self._of_rank.update({member.rank: child for member in change.joined})
        for before in known - {child}:
            if before not in self._of_rank.values():
                before.leave("here again")
        # Who is below another child by now has not gone.
        gone = tuple([rank for rank in change.gone if self._of_rank.get(rank) is child])
        for rank in gone:
            del self._of_rank[rank]
        self.above.members_changed(replace(change, gone=gone))

    def pinged(self, child: Child, ping: Ping, arrived_ns: int) -> None:
        """Answer a ping."""
        offset, uncertainty = self.above.offset_at(arrived_ns) or (None, 0)
        interval_s = max(LEAST_INTERVAL_S, len(self._ranks) / _CHILDREN_A_SECOND)
        host_id = "" if child.member is None else child.member.host_id
        is_first = self._firsts.setdefault(host_id, child) is child
        answered = self.above.clock()
        child.send(
            Pong(ping.sent_ns, arrived_ns, answered, offset, uncertainty, interval_s, is_first)
        )

    async def ask(self, question: Ask) -> tuple[list[Answered], set[Child]]:
        """Ask all; return what came in time, and of whom nothing did."""
        body = encode(question)
        asked = {child: child.ask(question.number, body) for child in list(self._ranks)}
        if asked:
            await asyncio.wait(asked.values(), timeout=question.timeout_s)
        for child in asked:
            child.asked.pop(question.number, None)
        came = [c for c, awaited in asked.items() if awaited.done() and not awaited.cancelled()]
        return [asked[child].result() for child in came], asked.keys() - came
