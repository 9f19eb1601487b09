"""Where the ranks find each other: what they leave in the job's store, and which address is whose.

    hub       its places and token --hub--> the store
    others    the store --> hub on this host? its places : who was first on this host?
                            first one of a host: the hub, by an address that is not loopback

A hub that reaches the store by loopback (Debian lets a host's own name be 127.0.1.1) does not know
by which address others reach it: one of them leaves its own, and the route to that tells.

Everything here may block, in torch's store or a name server, and runs on threads of its own.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ...staging.job import address_of_this_host, first_word, restart_count
from ..native_calls import result_aside
from .messages import HubAddress, Place

LOOPBACK = "127.0.0.1"

T = TypeVar("T")

_ANSWER_S = 10.0
"""What takes longer is waited for no more; its thread may be lost."""
_MOST_WAITING = 4
"""Such calls for the same thing: training may hold the store's client as long as it waits for a
key."""

_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, set[object]]]
_waiting = WeakKeyDictionary()


class Meeting:
    """The keys of one start of a job in its ``store``; safe from any thread, but may block."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._prefix = f"hooktrace/channel/{restart_count()}/"

    def own_address(self) -> str:
        """Return the address by which this host reaches the store."""
        return address_of_this_host(self._store)

    def publish(self, hub: HubAddress | None) -> None:
        """Say where the hub is; it may have been elsewhere before."""
        self._store.set(self._prefix + "hub", msgspec.json.encode(hub).decode())

    def hub(self) -> HubAddress | None:
        """Return where the hub is, ``None`` where it has not said so."""
        said = self._get("hub")
        return None if said is None else msgspec.json.decode(said, type=HubAddress)

    def first_of_host(self, hub: HubAddress, host_id: str, place: Place) -> Place:
        """Return where the first rank of a host listens that asked; it may be this one.

        ``hub``: whose tree it is.
        """
        key = f"{self._prefix}host/{hub.token}/{host_id}"
        said = first_word(self._store, key, msgspec.json.encode(place).decode())
        first: Place = msgspec.json.decode(said, type=Place)
        return first

    def leave_address(self) -> None:
        """Leave an address of this host's, for a hub that does not know its own."""
        first_word(self._store, self._prefix + "elsewhere", self.own_address())

    def address_elsewhere(self) -> str | None:
        """Return an address of another host than the hub's, ``None`` if nobody left one."""
        said = self._get("elsewhere")
        return None if said is None else said.decode()

    def _get(self, name: str) -> bytes | None:
        key = self._prefix + name
        return bytes(self._store.get(key)) if self._store.check([key]) else None


def is_loopback(host: str) -> bool:
    """Return whether an IP address means the host itself, on each host."""
    return ipaddress.ip_address(host).is_loopback


async def aside(work: Callable[[], T], needs: str = "torch's store") -> T:
    """Run what may block on a thread of its own, which nobody waits for at the end.

    ``needs``: what it waits for; work that needs something else goes on where that hangs.
    Raises ``TimeoutError`` where it takes too long, or several threads wait for the same already,
    and what it raises.
    """
    waiting = _waiting.setdefault(asyncio.get_running_loop(), {}).setdefault(needs, set())
    if len(waiting) >= _MOST_WAITING:
        raise TimeoutError(f"{needs} has not answered for a while")
    result = result_aside(work, "hooktrace-meeting")
    waiting.add(result)
    result.add_done_callback(waiting.discard)
    async with asyncio.timeout(_ANSWER_S):
        return await asyncio.wrap_future(result)
