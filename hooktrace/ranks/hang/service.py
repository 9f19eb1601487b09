"""What every process does about hangs: it watches its calls, answers the hub, hears its notices.

watchdogs, each second --Suspicion--> hub.py, at the hub
questions --> status, stacks          notice --> HangRecord --> each tracer
the hub is gone --rules.py--> a line in the log; a notice of this rank's own
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ..channel.messages import HUB_GONE, Silent
from ..native_calls import call_aside
from .diagnosis import waits_without_hub
from .evidence import stacks
from .hub import HangHub, over, stacks_of
from .look import rank_status
from .messages import NOTICE, STACKS, STATUS, SUSPICION, Hang, RankStatus, Suspicion
from .rules import hub_is_gone
from .sentences import stamped
from .watchdog import Watchdog

if TYPE_CHECKING:
    from ...tracing.process_channel import TracerHangs
    from ..channel.channel import Channel

logger = logging.getLogger("hooktrace")

_LOOK_S = 1.0

_encode = msgspec.msgpack.encode


class HangService:
    """Hangs of one process's tracers; all in the channel's thread, and briefly."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._watchdogs: dict[TracerHangs, Watchdog] = {}
        self.open: tuple[Hang, float] | None = None
        """What was told last and is not over yet, and when by the monotonic clock."""
        self.number = 0
        """Of the next hang."""
        self._lock = threading.Lock()
        self._hub = HangHub(self)
        self._is_alone = False
        """Whether what is open was told by this rank itself, without the hub."""
        self._said_gone = False
        channel.handlers[STATUS] = lambda _: _encode(self.status())
        channel.handlers[STACKS] = self._answer_stacks
        channel.report_handlers[SUSPICION] = self._hear
        channel.notice_handlers[NOTICE] = self._note
        channel.notice_handlers[HUB_GONE] = self._hub_gone
        channel.every(_LOOK_S, self._look)

    def add(self, user: TracerHangs) -> None:
        """Watch a tracer's models from now on."""
        with self._lock:
            self._watchdogs[user] = Watchdog(user, self.status, user.hang_after_s)

    def remove(self, user: TracerHangs) -> None:
        """Watch a tracer no more."""
        with self._lock:
            watchdog = self._watchdogs.pop(user, None)
        news = None if watchdog is None else watchdog.close()
        if news is not None:
            self.channel.report(SUSPICION, _encode(news))

    def status(self) -> RankStatus:
        """Return what this rank knows of itself."""
        paused = any(user.paused for user in self._users())
        models = [model for user in self._users() for model in user.model_states()]
        return rank_status(self.channel.rank, models, self.channel.clock(), paused=paused)

    def _users(self) -> list[TracerHangs]:
        with self._lock:
            return list(self._watchdogs)

    def _look(self) -> None:
        with self._lock:
            watchdogs = list(self._watchdogs.items())
        for user, watchdog in watchdogs:
            news = None if user.paused else watchdog.look()
            if news is not None:
                self.channel.report(SUSPICION, _encode(news))
            if news is not None and news.over and self._is_alone and self.open is not None:
                self._is_alone = False
                self._take(over(*self.open, news.error))

    def _hear(self, rank: int, payload: bytes) -> bool:
        if not self.channel.is_hub:
            return False
        self._hub.hear(rank, msgspec.msgpack.decode(payload, type=Suspicion))
        return True

    def _note(self, payload: bytes) -> None:
        self._is_alone = False
        self._take(msgspec.msgpack.decode(payload, type=Hang))

    def _hub_gone(self, payload: bytes) -> None:
        """Say so once a host; of a call that waits too long meanwhile, tell what is known here."""
        hub = msgspec.msgpack.decode(payload, type=Silent)
        if self.channel.speaks_for_host and not self._said_gone:
            self._said_gone = True
            said = stamped(self.channel.rank, time.time_ns(), hub_is_gone(hub))
            # A log's lock, a disk may be what ranks wait for.
            call_aside(lambda: logger.warning("%s", said), "hooktrace-hang-warn")
        with self._lock:
            suspicions = [one.suspicion for one in self._watchdogs.values()]
            is_told = self.open is not None
        limits = [said.threshold_ns for said in suspicions if said is not None]
        if is_told or not limits:
            return
        found = waits_without_hub(self.status(), hub, self.channel.world_size)
        # The hub may go on meanwhile, and the ranks to a call that nobody has suspected yet.
        if found is not None and found.is_due(min(limits)):
            self._is_alone = True
            self._take(replace(found, hang=self.number))

    def _take(self, found: Hang) -> None:
        self.number = max(self.number, found.hang + 1)
        # Under the lock: a tracer that closes meanwhile has been told of the end, or says it.
        with self._lock:
            self.open = None if found.ended_after_ns is not None else (found, time.monotonic())
            for user in self._watchdogs:
                record = found.record(self.channel.rank, user.clock(), time.time_ns())
                user.hear_of_hang(record, speaks=self.channel.speaks_for_host)

    def _answer_stacks(self, wanted: bytes) -> bytes:
        me = self.channel.me
        if me.rank not in msgspec.msgpack.decode(wanted, type=tuple[int, ...]):
            return _encode(None)
        return _encode(stacks_of(me, "running", stacks_text()))


def stacks_text() -> str:
    """Return the stacks of all threads but this one, as people read them."""
    return "\n\n".join(stack.text() for stack in stacks())
