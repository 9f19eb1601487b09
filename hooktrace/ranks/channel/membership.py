"""Stays in the tree: finds a parent, and another one when it is lost, or becomes the hub.

    rank 0 --> the hub           others --meeting.py--> the hub, or the first one of their host
    parent lost --> the hub again, its successors in their order, this node itself if it is one
                --> none of them: said once, and tried again

After the first meeting neither the store nor a collective is needed.  A rank that took over looks
for the hub before it: that may have been stopped for a while only.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from .clock import ClockOffset
from .doors import Doors
from .handshake import TOKEN_BYTES
from .meeting import LOOPBACK, HubPlaces, Key, Meeting, aside, is_loopback, route_to
from .messages import Listen, Listening, Pace, Place, Spot
from .node import Node
from .succession import Succession
from .upward import RefusedError, Upward

logger = logging.getLogger("hooktrace")

T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 2.0
"""Between two tries to find a parent; more where very many ranks ask the store."""
_RANKS_A_SECOND = 1000

_LASTING_S = 2.0
"""A pause after which the hub is not just late."""

_HEAL_S = 2.0
"""Between two looks of a rank that took over for the hub before it, and for a new one."""

_FIRSTS = 3
"""Ranks that were the first ones of this host and are gone, before this one turns to the hub."""
_REFUSALS = 7
"""Of somebody who is on the way into the tree, or does not know yet that the hub is lost."""

_HOSTS_A_SECOND = 125
"""From more hosts than these each of them says something less often."""


class Membership:
    """Keeps ``node`` in the tree.  ``meeting`` is ``None`` where there is one process only.

    ``on_hub`` is called when this node is the hub, and when it listens elsewhere.
    """

    def __init__(
        self, node: Node, meeting: Meeting | None, offset: ClockOffset, on_hub: Callable[[], None]
    ) -> None:
        self._node = node
        self._meeting = meeting
        self._offset = offset
        self._on_hub = on_hub
        self.doors = Doors(node.children, node.clock, secrets.token_bytes(TOKEN_BYTES))
        self.upward = Upward(node, offset)
        self.succession = Succession(node, self.doors)
        self._before: tuple[Spot, ...] = ()
        """Where this one took over: the hub, and those who come before this one."""
        self._trouble: Exception | None = None
        self._is_said = False
        self._refusals = 0
        node.parent = self.upward
        self.upward.on_listen = lambda listen: node.spawn(self._listen(listen))
        self.upward.on_successors = self.succession.learn

    @property
    def hub_places(self) -> tuple[Place, ...]:
        """Where the hub listens, as far as it is reached from this host; empty if unknown."""
        known = self.succession.known
        return () if known is None else tuple(self.succession.reachable(known.hub))

    async def stay(self) -> None:
        """Be in the tree until this is cancelled."""
        if self._node.me.rank == 0 or self._meeting is None:
            await self._begin_as_hub()
        pause_s = _FIRST_PAUSE_S
        longest_s = max(_LONGEST_PAUSE_S, self._node.world_size / _RANKS_A_SECOND)
        while True:
            if self._node.is_hub:
                await self._be_hub()
            elif await self._join_somebody():
                pause_s = _FIRST_PAUSE_S
                await self._be_child()
            elif not self._node.is_hub:
                self._say_alone(pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)

    async def _be_child(self) -> None:
        self._is_said = True  # it works: the hub may well end before this one
        self._refusals = 0
        goodbye = await self.upward.stay()
        member = self.upward.member
        if member is not None:
            self._node.parent_left(member, goodbye)

    async def _be_hub(self) -> None:
        """Be the hub until the one before it is found again."""
        while True:
            await asyncio.sleep(_HEAL_S)
            self._set_pace(max(1.0, self._node.children.count / _HOSTS_A_SECOND))
            if self._before and await self._found_again():
                break
        self._node.is_hub, self._before = False, ()
        assert self.upward.member is not None
        self._node.children.hub_is_back(self.upward.member)
        await self._be_child()

    async def _found_again(self) -> bool:
        for spot in self._before:
            if await self._join_one_of(spot):
                return True
        return await self._meet()

    def _set_pace(self, interval_s: float) -> None:
        """Have the children beat as often as this node can take."""
        if interval_s != self._node.interval_s:
            self._node.interval_s = interval_s
            self._node.children.send(Pace(interval_s))

    async def _join_somebody(self) -> bool:
        """Return whether there is a parent now; there is none either where this is the hub now."""
        if self.succession.known is None:
            return await self._meet() or await self._meet("took_over")
        for place in list(self.succession.candidates()):
            if place is None:
                await self._take_over()
                return False
            if await self._join(place):
                return True
            if self._waits_for_tree():
                return False
        return await self._meet() or await self._meet("took_over")

    async def _join_one_of(self, spot: Spot, token: bytes | None = None) -> bool:
        for place in self.succession.reachable(spot):
            if await self._join(place, token):
                return True
        return False

    async def _join(self, place: Place, token: bytes | None = None) -> bool:
        token = token or self.doors.token
        try:
            await self.upward.join(place, token)
        except (OSError, TimeoutError, RefusedError) as error:
            logger.debug("no parent at %s port %d: %s", *place, error)
            self._trouble = error
            return False
        self.doors.token = token
        return True

    async def _meet(self, key: Key = "hub") -> bool:
        """Find the hub by what it left in the store, and join it or the first one of this host."""
        meeting = self._meeting
        if meeting is None:
            return False
        try:
            hub = await aside(lambda: meeting.hub(key))
            if hub is None or set(hub.places) & set(self.doors.places):
                return False
            return await self._join_found(meeting, hub)
        except Exception as error:  # of torch's store
            self._trouble = error
            if self.succession.known is not None and not isinstance(error, TimeoutError):
                self._meeting = None  # it has gone with a rank, and would say so again and again
            return False

    async def _join_found(self, meeting: Meeting, hub: HubPlaces) -> bool:
        token, spot = bytes.fromhex(hub.token), Spot(0, hub.host_id, hub.places)
        if hub.host_id == self._node.me.host_id:
            return await self._join_one_of(spot, token)
        if not self._node.is_hub:
            self.doors.token = token  # of those who may come before this one is in the tree
        if not list(self.succession.reachable(spot)):
            own = await aside(meeting.own_address)
            await aside(lambda: meeting.leave_address(own))
        first = await self._first_of_host(meeting, hub)
        for _ in range(_FIRSTS):
            if first is None:
                break
            if await self._join(first, token):
                return True
            if self._waits_for_tree():
                return False  # one connection a host is enough
            if isinstance(self._trouble, RefusedError):
                break
            first = await self._first_of_host(meeting, hub, first)
        return await self._join_one_of(spot, token)

    def _waits_for_tree(self) -> bool:
        """Return whether somebody is there, and likely to be in the tree, or the hub, soon."""
        if not isinstance(self._trouble, RefusedError):
            return False
        self._refusals += 1
        return self._refusals <= _REFUSALS

    async def _first_of_host(
        self, meeting: Meeting, hub: HubPlaces, gone: Place | None = None
    ) -> Place | None:
        """Return where another rank of this host listens for the others, ``None`` if this does."""
        await self.doors.open([LOOPBACK])
        own = next(place for place in self.doors.places if place[0] == LOOPBACK)
        host_id = self._node.me.host_id
        first = await aside(lambda: meeting.first_of_host(hub, host_id, own, gone))
        if first == own:
            return None
        self.doors.shut(LOOPBACK)
        return first

    async def _begin_as_hub(self) -> None:
        own = LOOPBACK if self._meeting is None else await aside(self._meeting.own_address)
        await self.doors.open([own])
        self._offset.is_reference = True
        self._node.is_hub = True
        self.succession.name_successors()
        self._on_hub()
        self._node.spawn(self._publish())
        if self._meeting is not None and is_loopback(own):
            self._node.spawn(self._widen(self._meeting))

    async def _widen(self, meeting: Meeting) -> None:
        """Listen where other hosts reach this one, once one of them has left its address."""
        pause_s = _FIRST_PAUSE_S
        while len(self._node.roster) < self._node.world_size:
            elsewhere = await _at_last(meeting.address_elsewhere)
            if elsewhere is not None:
                await self.doors.open([await aside(partial(route_to, elsewhere))])
                self.succession.widened()
                self._on_hub()
                await self._publish()
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LASTING_S)

    async def _take_over(self) -> None:
        """Be the hub: the one before, and whoever comes before this one, are lost."""
        assert self.succession.known is not None
        self._before = self.succession.before_this()
        self._node.is_hub = True
        self.succession.name_successors()
        self._on_hub()
        self._node.spawn(self._publish_later())

    async def _publish(self) -> None:
        """Leave in the store where the hub is; it may be gone with the hub before."""
        meeting = self._meeting
        if meeting is not None:
            await _at_last(lambda: self._leave_places(meeting))

    def _leave_places(self, meeting: Meeting) -> None:
        spot = self.succession.own_spot()
        hub = HubPlaces(spot.host_id, spot.places, self.doors.token.hex())
        meeting.publish(hub, "took_over" if self._before else "hub")

    async def _publish_later(self) -> None:
        """Where a job ends rank by rank, each is the hub for a moment; the store may be gone."""
        await asyncio.sleep(_LASTING_S)
        if self._node.is_hub:
            await self._publish()

    async def _listen(self, listen: Listen) -> None:
        await self.doors.open(listen.hosts or (self.upward.own_host,))
        self.upward.send(Listening(self.doors.places))

    def _say_alone(self, pause_s: float) -> None:
        """Say once that nobody is reached; a hub that has not come yet is just late."""
        if self._is_said or pause_s <= _LASTING_S or self._trouble is None:
            return
        self._is_said = True
        logger.warning(
            "rank 0 is not reached (%s: %s): this rank's clock is not compared with the others', "
            "and a hang of it is not explained; let this host reach rank 0's over TCP, or pass "
            "Tracer(channel=False)",
            type(self._trouble).__name__,
            self._trouble,
        )


async def _at_last(work: Callable[[], T]) -> T:
    """Return what the store says: training may hold its client while it waits for a late rank."""
    while True:
        try:
            return await aside(work)
        except TimeoutError:
            await asyncio.sleep(_LASTING_S)
