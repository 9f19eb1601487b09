"""The parent of this node: how it is found, what it tells, and how it is found again once lost.

And how rank 0, which has none, begins as the hub.

    rank 0 --> the hub           others --meeting.py--> the hub, or the first one of their host
    connect, proofs --Hello--> Welcome | Goodbye     Ask, Notice --> the node     pings --> clock.py
    parent lost --> the hub where it was, or where the store has it by now
                --> not there without a word: the ranks below are told what is known of it

After the first meeting neither the store nor a collective is needed to find the hub again: it may
have been stopped for a while only.  No rank takes its place: DDP does not go on without rank 0.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from ...staging.job import route_to
from .connection import Connection
from .meeting import LOOPBACK, Meeting, aside, is_loopback
from .messages import (
    HUB_GONE,
    PROTOCOL,
    Ask,
    Down,
    Hello,
    HubAddress,
    Member,
    Message,
    Notice,
    Ping,
    Place,
    Pong,
    Report,
    Silent,
    State,
    Welcome,
    encode,
)

if TYPE_CHECKING:
    from .node import Node

logger = logging.getLogger("hooktrace")

T = TypeVar("T")

_NO_PROOF = "who listens there does not prove that it knows this job's token"

_CONNECT_S = 3.0
SILENCE_S = 6.0
"""After which a parent that says nothing is taken for lost; more where pings are rarer."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0
"""Between two tries to find a parent; more where very many ranks ask the store."""
_RANKS_A_SECOND = 1000

_LASTING_S = 2.0
"""After which a hub that was lost is not just between two connections."""

_LATE_S = 30.0
"""After which a rank that was never in the tree says so: rank 0 may come late to its first step."""


class Parent(Connection):
    """One that may take ``node``, and what is known of it: also once the connection is over.

    A ping goes each interval, with a report if there is one: a parent of many takes both at once.
    """

    def __init__(self, node: Node, token: bytes) -> None:
        super().__init__(token, node.clock, Hello(PROTOCOL, node.me))
        self._node = node
        self._welcomed: asyncio.Future[Member] = asyncio.Future()
        self._over: asyncio.Future[None] = asyncio.Future()
        self._interval_s = 1.0
        self._has_pinged = False
        """Whether a report has taken a ping along, in this interval."""
        self.member: Member
        """Which rank it is, from ``join`` on."""
        self.is_first = False
        """Whether this is the first one of its host among the parent's children."""

    @property
    def is_there(self) -> bool:
        """Whether the connection stands, of one that has taken this node."""
        return not self._over.done()

    async def join(self, place: Place) -> None:
        """Become a child of whoever listens there.

        Raises ``OSError`` where nobody of this job does, or does not take this node.
        """
        try:
            async with asyncio.timeout(_CONNECT_S):
                await asyncio.get_running_loop().create_connection(lambda: self, *place)
                self.member = await self._welcomed
        except BaseException:
            self._welcomed.cancel()
            self.end("no parent")
            raise
        self._node.joined_parent(self)

    async def stay(self) -> None:
        """Return once the parent is gone."""
        while True:
            await asyncio.wait([self._over], timeout=self._interval_s)
            if self._over.done():
                return
            if time.monotonic() - self.heard_s > max(SILENCE_S, 3 * self._interval_s):
                self.end("no parent any more")
                return
            if not self._has_pinged:
                self.ping()
            self._has_pinged = False

    def ping(self) -> None:
        """Ask for the parent's time, and say that this node is there."""
        self.send(Ping(self._node.clock()))

    def send(self, message: Message) -> None:
        """Send a message; the first report of an interval takes its ping along."""
        if not isinstance(message, Report) or self._has_pinged:
            super().send(message)
            return
        self._has_pinged, report = True, encode(message)
        # The ping first: it waits for no more than itself, here and there.
        self.send_body(encode(Ping(self._node.clock())), report)

    def received(self, message: Down, arrived_ns: int) -> None:
        """Take a message of the parent."""
        match message:
            case Pong():
                self._interval_s, self.is_first = message.interval_s, message.is_first
                if self._node.offset.answered(message, arrived_ns):
                    self.ping()
            case Ask():
                self._node.spawn(self._node.answer_parent(message))
            case Notice():
                self._node.notice(message)
            case Welcome():
                if not self._welcomed.done():
                    self._welcomed.set_result(message.member)

    def disconnected(self) -> None:
        """Let another parent be looked for."""
        if not self._welcomed.done():
            why = (self.goodbye or "the connection ended") if self.known else _NO_PROOF
            self._welcomed.set_exception(ConnectionError(why))
        self._over.set_result(None)


class Membership:
    """Keeps ``node`` in the tree.  ``meeting`` is ``None`` where there is one process only."""

    def __init__(self, node: Node, meeting: Meeting | None) -> None:
        self._node = node
        self._meeting = meeting
        self._children = node.children
        self._trouble: Exception | None = None
        self._is_said = False

    async def stay(self) -> None:
        """Be in the tree until this is cancelled."""
        if self._node.rank == 0 or self._meeting is None:
            await self._begin_as_hub()
            await asyncio.Event().wait()
        while True:
            parent = await self._find_parent()
            await parent.stay()
            if parent.goodbye is None:
                # Nobody else of its host may know of it but those that were below it.
                self._node.lost[parent.member.rank] = parent.member

    async def _find_parent(self) -> Parent:
        pause_s, begun = _FIRST_PAUSE_S, time.monotonic()
        longest_s = max(_LONGEST_PAUSE_S, self._node.world_size / _RANKS_A_SECOND)
        while True:
            before, hub = self._hub_state(), self._node.hub
            if hub is not None and (parent := await self._join(hub.places)):
                return parent
            # Before the store is asked, which may be the hub's process, too, and hang with it.
            self._tell_of_hub(time.monotonic() - begun, before)
            if parent := await self._meet():
                return parent
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def _is_here(self, hub: HubAddress) -> bool:
        return hub.member.host_id == self._node.me.host_id

    async def _join(self, places: Iterable[Place]) -> Parent | None:
        for place in places:
            parent = Parent(self._node, self._children.token)
            try:
                await parent.join(place)
            except OSError as error:
                logger.debug("no parent at %s port %d: %s", *place, error)
                self._trouble = error
            else:
                return parent
        return None

    async def _meet(self) -> Parent | None:
        """Find the hub by what it left in the store, and join it or the first one of this host."""
        if self._meeting is None:
            return None
        try:
            hub = await aside(self._meeting.hub)
            if hub is None:
                return None
            here = self._is_here(hub)
            places = tuple(place for place in hub.places if here or not is_loopback(place[0]))
            # Others may come before this is in the tree.
            self._children.token = bytes.fromhex(hub.token)
            self._node.hub = hub = replace(hub, places=places)
            first = () if here else await self._first_of_host(self._meeting, hub)
        except TimeoutError:
            return None  # training has the store
        except Exception as error:  # of torch's store
            if self._node.parent is None:
                self._trouble = error
            else:
                self._meeting = None  # it has gone with a rank, and would say so again and again
            return None
        return await self._join((*first, *hub.places))

    async def _first_of_host(self, meeting: Meeting, hub: HubAddress) -> tuple[Place, ...]:
        """Return where another rank of this host listens for the others, nothing if this does."""
        if not hub.places:
            await aside(meeting.leave_address)
        own = await self._children.open(LOOPBACK)
        host_id = self._node.me.host_id
        first = await aside(lambda: meeting.first_of_host(hub, host_id, own))
        if first == own:
            return ()
        self._children.shut(own)
        return (first,)

    async def _begin_as_hub(self) -> None:
        own = LOOPBACK if self._meeting is None else await aside(self._meeting.own_address)
        self._node.offset.is_reference = True
        await self._listen(own)
        if self._meeting is not None:
            self._node.spawn(self._publish(self._meeting, own))

    async def _listen(self, host: str) -> None:
        """As the hub, listen at one more address of this host, and say where."""
        await self._children.open(host)
        places, token = self._children.places, self._children.token.hex()
        self._node.hub = HubAddress(places=places, token=token, member=self._node.me)
        self._node.is_hub = True  # whoever asks knows where, then
        self._node.on_hub()

    async def _publish(self, meeting: Meeting, own: str) -> None:
        """Leave in the store where the hub is, and listen where other hosts reach it.

        That is known once one of them has left its address.
        """
        await _at_last(lambda: meeting.publish(self._node.hub))
        while is_loopback(own) and len(self._node.roster) < self._node.world_size:
            elsewhere = await _at_last(meeting.address_elsewhere)
            if elsewhere is not None:
                await self._listen(await aside(partial(route_to, elsewhere)))
                await _at_last(lambda: meeting.publish(self._node.hub))
                return
            await asyncio.sleep(_LASTING_S)

    def _tell_of_hub(self, alone_s: float, before: State | None) -> None:
        """Tell what is known of a hub that is not there; of one that ended in order, nothing.

        ``before``: the state of its process before the last try; if that has changed, the try says
        nothing of the process as it is now.
        """
        trouble, parent = self._trouble, self._node.parent
        why = "" if trouble is None else f"{type(trouble).__name__}: {trouble}".rstrip(": ")
        hub, state = self._node.hub, self._hub_state()
        if hub is None or parent is None:
            if alone_s > _LATE_S and why and not self._is_said:
                self._is_said = True
                logger.warning(
                    "rank 0 is not reached (%s): this rank's clock is not compared with the "
                    "others', and a hang of it is not explained; let this host reach rank 0's over "
                    "TCP, or pass Tracer(channel=False)",
                    why,
                )
        elif alone_s > _LASTING_S and parent.goodbye is None and state == before:
            is_silent = isinstance(trouble, OSError) and not isinstance(trouble, ConnectionError)
            told = state or ("unreachable" if is_silent else "unknown")
            self._node.notice(Notice(HUB_GONE, encode(Silent(hub.member, told, why[:1024]))))

    def _hub_state(self) -> State | None:
        """Return the state of the hub's process, ``None`` where that is not seen from here."""
        hub = self._node.hub
        return self._node.look(hub.member) if hub is not None and self._is_here(hub) else None


async def _at_last(work: Callable[[], T]) -> T:
    """Return what the store says: training may hold its client while it waits for a late rank."""
    while True:
        try:
            return await aside(work)
        except TimeoutError:
            await asyncio.sleep(_LASTING_S)
