"""One process in the tree of ranks: what it passes up, passes down, and answers itself.

    parent --Ask, Notice--> node --> children (children.py)      itself: the handlers of its users
    parent <--Answered, Report, Members-- node <-- children

The hub is the node without a parent.  Everything here runs in the channel's thread and waits for
nothing but messages.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from .children import Child, Children
from .clock import ClockOffset
from .messages import (
    MOST_PAYLOAD,
    Answered,
    Ask,
    HubAddress,
    Member,
    Members,
    Notice,
    Report,
    Silent,
    State,
    Up,
    unheard,
)
from .process import state_of

if TYPE_CHECKING:
    from .parent import Parent

logger = logging.getLogger("hooktrace")

T = TypeVar("T")
U = TypeVar("U")

_SHARE = 0.75
"""Of a question's time that those below have."""


@dataclass
class Answers(Generic[T]):
    """What came of a question: the ``answers`` by rank, and the ranks that gave none."""

    answers: dict[int, T] = field(default_factory=dict)
    silent: dict[int, Silent] = field(default_factory=dict)

    def miss(self, silent: Silent) -> None:
        """Take note of a rank that did not answer; whoever knows its state knows best."""
        known = self.silent.get(silent.rank)
        if known is None or known.state in {"unknown", "unreachable"}:
            self.silent[silent.rank] = silent

    def decoded(self, decode: Callable[[T], U]) -> Answers[U]:
        """Return the answers as what they are; one of another version is none."""
        found: Answers[U] = Answers(silent=self.silent)
        for rank, answer in self.answers.items():
            try:
                found.answers[rank] = decode(answer)
            except msgspec.MsgspecError:
                found.miss(unheard(rank))
        return found


Handler = Callable[[bytes], bytes | Awaitable[bytes]]
"""Answers for this rank; one that takes longer than some ms does so as a coroutine."""


class Node:
    """``me``: this rank, one of ``world_size``.  ``offset``: of its clock to rank 0's."""

    is_hub = False

    hub: HubAddress | None = None
    """Where the hub is, as far as it is reached from this host; ``None`` if unknown."""

    def __init__(self, me: Member, world_size: int, offset: ClockOffset) -> None:
        self.me = me
        self.rank = me.rank
        self.world_size = world_size
        self.clock = offset.clock
        self.offset = offset
        self.offset_at = offset.offset_at
        self.look: Callable[[Member], State] = state_of
        """Returns the state of a process of this host."""
        self._numbers = itertools.count()
        self.on_hub: Callable[[], object] = lambda: None
        """Called when this node is the hub, and when it listens elsewhere."""
        self.parent: Parent | None = None
        """The one that took this node last."""
        self.children = Children(self)
        # By name, what this rank's users do; all in the channel's thread.
        self.handlers: dict[str, Handler] = {}
        """Answer a question."""
        self.notice_handlers: dict[str, Callable[[bytes], None]] = {}
        """Take news that the hub has for all ranks."""
        self.report_handlers: dict[str, Callable[[int, bytes], bool]] = {}
        """Take news on their way to the hub; one that returns true keeps them from going on."""
        self.control_handlers: dict[str, Handler] = {}
        """At the hub, answer a client."""
        self.roster: dict[int, Member] = {me.rank: me}
        """Who is in this node and below it."""
        self.lost: dict[int, Member] = {}
        """Who is there no more: at the hub of all ranks, elsewhere a parent too that was lost."""
        self.ended: dict[int, Member] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def speaks_for_host(self) -> bool:
        """Whether what all ranks are told is for this one to say, of those on this host."""
        parent = self.parent
        if self.is_hub or parent is None:
            return self.is_hub
        is_here = parent.is_there and parent.member.host_id == self.me.host_id
        return parent.is_first and not is_here

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine; what it raises is none of training's business."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # Questions go down.

    async def gather(self, name: str, argument: bytes, timeout_s: float) -> Answers[bytes]:
        """Ask this rank and all below it; at the hub, something is said of each rank of the job."""
        question = Ask(next(self._numbers), name, argument, timeout_s)
        found: Answers[bytes] = Answers()
        (answered, mute), _ = await asyncio.gather(
            self.children.ask(question), self._answer(self.handlers, question, found)
        )
        for one in answered:
            found.answers.update(one.answers)
            for silent in one.silent:
                found.miss(silent)
        here = self.me.host_id
        below = [self.roster[rank] for rank in self.children.below(mute)]
        for member in (*below, *(one for one in self.lost.values() if one.host_id == here)):
            state: State = self.look(member) if member.host_id == here else "unreachable"
            found.miss(Silent(member, state))
        if self.is_hub:
            self._name_the_rest(found)
        return found

    def _name_the_rest(self, found: Answers[bytes]) -> None:
        """Say something of each rank that no answer is of."""
        hosts = {member.host_id for member in self.roster.values()}
        for member in self.lost.values():
            state: State = "unknown" if member.host_id in hosts else "unreachable"
            found.miss(Silent(member, state, "its connection ended"))
        for member in self.ended.values():
            found.silent[member.rank] = Silent(member, "ended")
        for rank in found.silent.keys() & found.answers.keys() & self.roster.keys():
            del found.silent[rank]
        for rank in set(range(self.world_size)) - found.answers.keys() - found.silent.keys():
            is_known = rank in self.roster
            why = "it is between two parents" if is_known else "it has not joined the channel"
            found.miss(Silent(self._member(rank), "unknown", why))

    def _member(self, rank: int) -> Member:
        return self.roster.get(rank) or unheard(rank).member

    async def _answer(
        self, handlers: dict[str, Handler], question: Ask, found: Answers[bytes]
    ) -> None:
        """Answer for this rank."""
        try:
            answer = handlers[question.name](question.argument)
            if not isinstance(answer, bytes):
                async with asyncio.timeout(question.timeout_s):
                    answer = await answer
            found.answers[self.rank] = answer
        except Exception as error:  # of a user of the channel
            why = f"{type(error).__name__}: {error}"[:1024]
            found.miss(Silent(self.me, "running", why))

    async def answer_parent(self, question: Ask) -> None:
        """Ask all below, and answer for them."""
        share = question.timeout_s * _SHARE
        found = await self.gather(question.name, question.argument, share)
        self._send_up(self._answered(question, found))

    def _answered(self, question: Ask, found: Answers[bytes]) -> Answered:
        """Return the answers as a message; a rank whose answer does not fit in it is named."""
        room = MOST_PAYLOAD
        for rank, answer in sorted(found.answers.items()):
            if len(answer) <= room:
                room -= len(answer)
                continue
            del found.answers[rank]
            why = f"an answer of {len(answer)} bytes is too long, {MOST_PAYLOAD} fit of a host"
            found.miss(Silent(self._member(rank), "running", why))
        return Answered(question.number, found.answers, tuple(found.silent.values()))

    # News go up, and down again.

    def reported(self, report: Report) -> None:
        """Pass news on to the hub; a handler that returns true has taken them."""
        handler = self.report_handlers.get(report.name)
        try:
            if handler is not None and handler(report.rank, report.payload):
                return
        except Exception:
            logger.debug("in a report over the channel", exc_info=True)
        self._send_up(report)

    def _send_up(self, message: Up) -> None:
        if self.parent is not None:
            self.parent.send(message)

    def notice(self, notice: Notice) -> None:
        """Take news for all, and pass them on."""
        self.children.send(notice)
        try:
            if notice.name in self.notice_handlers:
                self.notice_handlers[notice.name](notice.payload)
        except Exception:
            logger.debug("in a notice over the channel", exc_info=True)

    async def answer_client(self, client: Child, question: Ask) -> None:
        """Answer somebody who is no rank."""
        found: Answers[bytes] = Answers()
        await self._answer(self.control_handlers, question, found)
        client.send(self._answered(question, found))

    # Who is there.

    def members_changed(self, change: Members) -> None:
        """Keep the roster, and tell the parent."""
        for member in change.joined:
            self.roster[member.rank] = member
            self.lost.pop(member.rank, None)
            self.ended.pop(member.rank, None)
        gone = self.ended if change.in_order else self.lost
        gone.update({rank: self.roster.pop(rank) for rank in change.gone if rank in self.roster})
        self._send_up(change)

    def joined_parent(self, parent: Parent) -> None:
        """Tell a new parent who is below."""
        self.parent = parent
        self.offset.joined()
        parent.ping()
        below = tuple(member for member in self.roster.values() if member is not self.me)
        if below:
            parent.send(Members(joined=below))
