"""Those who connected to this node: who they are, what they are asked, what time it is.

    Hello --> Welcome           Members, Report --> the node
    Ask --> ... --> Answered    Ping --> Pong

A child stands for all ranks below it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .connection import Connection
from .messages import (
    CONTROL,
    PROTOCOL,
    Answered,
    Ask,
    Down,
    Goodbye,
    Hello,
    Member,
    Members,
    Ping,
    Pong,
    Refused,
    Report,
    Up,
    Welcome,
    encode,
)

if TYPE_CHECKING:
    from .node import Node

_MOST_CONTROL = 32

_AT_ONCE = 64
"""Messages sent in one go of the loop."""


class Child:
    """One connection from below; ``below`` are the ranks that it stands for, its own too."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.member: Member | None = None
        self.below: dict[int, Member] = {}
        self.asked: dict[int, asyncio.Future[Answered | None]] = {}
        self.is_busy = False
        """Whether a control client waits for an answer."""

    @property
    def is_control(self) -> bool:
        """Whether it only asks."""
        return self.member is not None and self.member.rank == CONTROL

    def send(self, message: Down) -> None:
        """Send it a message."""
        self.connection.send(message)

    def ask(self, number: int, body: bytes) -> asyncio.Future[Answered | None]:
        """Ask; the answer is ``None`` where the connection ended before."""
        future = asyncio.get_running_loop().create_future()
        self.asked[number] = future
        self.connection.send_body(body)
        return future

    def answered(self, answer: Answered) -> None:
        """Take an answer; one that comes too late is not awaited any more."""
        future = self.asked.pop(answer.number, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def over(self) -> None:
        """Nobody will answer."""
        for future in self.asked.values():
            if not future.done():
                future.set_result(None)
        self.asked.clear()


class Children:
    """The children of a node, by connection; a ``Receiver``."""

    def __init__(self, above: Node) -> None:
        self._above = above
        self._all: dict[Connection, Child] = {}
        self._ranks: dict[Child, None] = {}
        self._outbox: deque[tuple[bytes, deque[Child]]] = deque()
        self._of_rank: dict[int, Child] = {}
        self._firsts: dict[str, Child] = {}
        """The child of each host that is told so."""
        self._numbers = itertools.count()
        self._takes: dict[type, Callable[[Child, Any, int], None]] = {
            Hello: lambda child, hello, _: self._hello(child, hello),
            Members: lambda child, change, _: self._members(child, change),
            Ping: self._ping,
            Answered: lambda child, answer, _: child.answered(answer),
            Report: lambda _, report, __: above.reported(report),
            Ask: lambda child, question, _: above.asked_by(child, question),
        }

    def __iter__(self) -> Iterator[Child]:
        """All that have said who they are, but control clients."""
        return iter(list(self._ranks))

    @property
    def count(self) -> int:
        """How many these are."""
        return len(self._ranks)

    def connections(self) -> list[Connection]:
        """Return all connections from below."""
        return list(self._all)

    def send(self, message: Down) -> None:
        """Send a message to all, to some of them at a time: others' turns come between."""
        is_sending = bool(self._outbox)
        self._outbox.append((encode(message), deque(self._ranks)))
        if not is_sending:
            self._send_some()

    def _send_some(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._send_one():
                return
        asyncio.get_running_loop().call_soon(self._send_some)

    def _send_one(self) -> bool:
        """Send one child what it is to get; returns whether there may be more to send."""
        while self._outbox:
            body, waiting = self._outbox[0]
            if waiting:
                waiting.popleft().connection.send_body(body)
                return True
            self._outbox.popleft()
        return False

    def send_rest(self) -> None:
        """Send what waits, all at once: it is the end."""
        while self._send_one():
            pass

    def connected(self, connection: Connection) -> None:
        """Wait for its hello."""
        self._all[connection] = Child(connection)

    def received(self, connection: Connection, message: Up, arrived_ns: int) -> None:
        """Take a message; whoever has not said hello says nothing else."""
        child = self._all[connection]
        if isinstance(message, Goodbye):
            return  # its end says the rest
        if (child.member is None) != isinstance(message, Hello):
            connection.end("out of turn")
            return
        if child.is_control and not isinstance(message, Ask | Ping):
            connection.end("not a rank")
            return
        self._takes[type(message)](child, message, arrived_ns)

    def disconnected(self, connection: Connection) -> None:
        """Say of all below the child how they went."""
        child = self._all.pop(connection, None)
        if child is None:
            return  # it did not know the token
        self._ranks.pop(child, None)
        child.over()
        self._replace_first(child)
        ranks = tuple(child.below)
        if not ranks or connection.ending:
            return
        if connection.goodbye is None:
            self._members(child, Members(lost=ranks))
        else:
            self._members(child, Members(ended=ranks))

    def _hello(self, child: Child, hello: Hello) -> None:
        refusal = self._refusal(hello)
        if refusal is not None:
            child.send(Refused(refusal))
            child.connection.leave("refused")
            return
        child.member = hello.member
        child.connection.introduced()
        if not child.is_control:
            self._ranks[child] = None
            self._firsts.setdefault(hello.member.host_id, child)
        self._welcome(child)
        if not child.is_control:
            self._members(child, Members(joined=(hello.member,)))

    def _welcome(self, child: Child) -> None:
        above = self._above
        first = None if child.member is None else self._firsts.get(child.member.host_id)
        child.send(Welcome(above.me, above.interval_s, above.is_hub, first is child))

    def _replace_first(self, gone: Child) -> None:
        """Let another child be the first of its host, where that is gone."""
        host = next((host for host, child in self._firsts.items() if child is gone), None)
        if host is None:
            return
        del self._firsts[host]
        for child in self._ranks:
            if child.member is not None and child.member.host_id == host:
                self._firsts[host] = child
                self._welcome(child)
                return

    def _refusal(self, hello: Hello) -> str | None:
        if hello.protocol != PROTOCOL:
            return "another version of hooktrace"
        if hello.member.rank == CONTROL:
            if not self._above.is_hub:
                return "this is not the hub"
            busy = sum(child.is_control for child in self._all.values()) >= _MOST_CONTROL
            return "too many clients" if busy else None
        if not self._may_be_below(hello.member):
            return "no rank of this job"
        return self._above.refusal(hello.member)

    def _may_be_below(self, member: Member) -> bool:
        return 0 <= member.rank < self._above.world_size and member.rank != self._above.me.rank

    def _members(self, child: Child, change: Members) -> None:
        if not all(map(self._may_be_below, change.joined)):
            child.connection.end("no ranks of this job")
            return
        for member in change.joined:
            before = self._of_rank.get(member.rank)
            if before is not None and before is not child:
                before.below.pop(member.rank, None)
                if not before.below:
                    before.connection.leave("here again")
            child.below[member.rank] = member
            self._of_rank[member.rank] = child
        gone = Members(
            joined=change.joined,
            ended=tuple([rank for rank in change.ended if self._forget(child, rank)]),
            lost=tuple([rank for rank in change.lost if self._forget(child, rank)]),
        )
        self._above.members_changed(gone)

    def _forget(self, child: Child, rank: int) -> bool:
        """Let go of a rank, unless it is below another child by now."""
        child.below.pop(rank, None)
        if self._of_rank.get(rank) is not child:
            return False
        del self._of_rank[rank]
        return True

    def _ping(self, child: Child, ping: Ping, arrived_ns: int) -> None:
        offset, uncertainty = self._above.offset(arrived_ns) or (None, 0)
        answered = self._above.clock()
        child.send(Pong(ping.number, arrived_ns, answered, offset, uncertainty))

    async def ask(self, question: Ask) -> list[tuple[Child, Answered | None]]:
        """Ask all, and return what came in time."""
        asked = {}
        for number, (child, body) in enumerate(self._questions(question)):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            if child in self._ranks:
                asked[child] = child.ask(question.number, body)
        if asked:
            await asyncio.wait(asked.values(), timeout=question.timeout_s)
            await asyncio.sleep(0)
        for child in asked:
            child.asked.pop(question.number, None)
        return [(c, future.result() if future.done() else None) for c, future in asked.items()]

    def _questions(self, question: Ask) -> Iterator[tuple[Child, bytes]]:
        """Yield whom to ask, and what is sent: each host looks at its own missing ranks only."""
        missing: dict[str, list[Member]] = {}
        for member in question.missing:
            missing.setdefault(member.host_id, []).append(member)
        missing.pop(self._above.me.host_id, None)
        common = encode(replace(question, missing=()))
        for child in self:
            theirs = missing.get(child.member.host_id) if child.member else None
            yield child, encode(replace(question, missing=tuple(theirs))) if theirs else common

    def next_number(self) -> int:
        """Return a number for a question."""
        return next(self._numbers)
