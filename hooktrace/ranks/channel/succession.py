"""Who follows the hub: it asks some of its children to listen, and lets everybody know where.

hub: a child is new --Listen--> it listens --Listening--> Successors --> all
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from .child import Child
from .doors import Doors
from .meeting import is_loopback
from .messages import Listen, Place, Spot, Successors
from .node import Node

_MOST = 2
"""Ranks of the hub's host that may become the hub, and listen for that, and as many elsewhere."""


class Succession:
    """What a node knows of the hub and of who follows it; at the hub, chooses these."""

    def __init__(self, node: Node, doors: Doors) -> None:
        self._node = node
        self._doors = doors
        self.known: Successors | None = None
        self._followers: list[Child] = []
        node.on_child, node.greeted, node.parted = self._child, self._greet, self._parted

    def own_spot(self) -> Spot:
        """Return where this node listens."""
        return Spot(self._node.me.rank, self._node.me.host_id, self._doors.places)

    def reachable(self, spot: Spot) -> Iterator[Place]:
        """Yield where somebody is reached from this host."""
        for place in spot.places:
            if spot.host_id == self._node.me.host_id or not is_loopback(place[0]):
                yield place

    def candidates(self) -> Iterator[Place | None]:
        """Yield who may be the hub, in order, and where; without a place for this node itself."""
        if self.known is None:
            return
        for spot in (self.known.hub, *self.known.next):
            if spot.rank == self._node.me.rank:
                yield None
            else:
                yield from self.reachable(spot)

    def before_this(self) -> tuple[Spot, ...]:
        """Return the hub and those of its successors who come before this node."""
        assert self.known is not None
        spots = (self.known.hub, *self.known.next)
        return tuple(takewhile(lambda spot: spot.rank != self._node.me.rank, spots))

    def learn(self, successors: Successors) -> None:
        """Keep what the hub says, and pass it on."""
        if successors != self.known:
            self.known = successors
            self._node.children.send(successors)

    def name_successors(self) -> None:
        """At the hub: let everybody know of it and its successors, those of its own host first."""
        following = tuple(
            Spot(child.member.rank, child.member.host_id, child.places)
            for child in sorted(self._followers, key=self._is_elsewhere)
            if child.places and child.member is not None
        )
        self.learn(Successors(self.own_spot(), following))

    def widened(self) -> None:
        """Have the successors on this host listen wherever it does."""
        for child in self._followers:
            if not self._is_elsewhere(child):
                child.send(Listen(self._doors.hosts))
        self.name_successors()

    def _greet(self, child: Child) -> None:
        if self.known is not None:
            child.send(self.known)

    def _child(self, child: Child) -> None:
        if self._node.is_hub:
            self._choose(child)
            self.name_successors()

    def _parted(self, child: Child) -> None:
        """Choose others in place of a successor that is gone."""
        if child not in self._followers:
            return
        self._followers.remove(child)
        if self._node.is_hub and not child.connection.ending:
            for other in self._node.children:
                self._choose(other)
            self.name_successors()

    def _choose(self, child: Child) -> None:
        """Let a child follow, where there are not enough of its kind: here, or elsewhere."""
        elsewhere = self._is_elsewhere(child)
        enough = sum(self._is_elsewhere(one) == elsewhere for one in self._followers) >= _MOST
        if not enough and child not in self._followers:
            self._followers.append(child)
            child.send(Listen(() if elsewhere else self._doors.hosts))

    def _is_elsewhere(self, child: Child) -> bool:
        return child.member is None or child.member.host_id != self._node.me.host_id
