"""What every process does about hangs, and the hub: who waits too long, why, and that it is over.

watchdogs, each second --Suspicion--> the hub: it asks all, asks again --diagnose--> Hang, its end
questions --> status, stacks                   notice --> HangRecord --> each tracer
the hub is gone --diagnosis.py--> a line in the log; a notice of this rank's own
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...records.hang import RankStacks
from ...records.last_used import Bounded
from ...records.units import named_ranks, time_text
from ..channel.messages import HUB_GONE, Member, Notice, Silent, encode
from ..native_calls import call_aside
from .collectives import collectives
from .diagnosis import diagnose, hub_is_gone, waits_without_hub
from .evidence import handled, stacks
from .look import Watchdog, look, training_thread
from .messages import NOTICE, STACKS, STATUS, SUSPICION, Hang, RankStatus, Suspicion, stamped
from .snapshot import Round

if TYPE_CHECKING:
    from ...staging.slots import ModelState
    from ...tracing.process_channel import TracerHangs
    from ..channel.channel import Channel
    from ..channel.node import Answers

logger = logging.getLogger("hooktrace")

_LOOK_S = 1.0
_FIRST_S, _SECOND_S, _STACKS_S = 1.0, 1.5, 0.5
"""How long ranks have to answer."""
_RANKS_A_SECOND = 2000
"""Whose answers the hub reads; with more ranks it waits longer."""
_BETWEEN_S = 1.0
"""From one question to the next: what moves meanwhile is no hang."""
_AGAIN_S = (2.0, 5.0, 15.0, 60.0)
"""Between two looks at the same hang: it may turn out to be of another kind."""
_MOST_STACKS = 4
"""Ranks whose stacks a record has: each rank writes it."""

_MOST_TOLD = 4
"""Hangs that ``hooktrace top`` shows."""

_MOST_CALLBACKS = 16
_MOST_CHARACTERS = 16_384
"""Of one rank's stacks."""

_decode_hang = msgspec.msgpack.Decoder(Hang).decode
_decode_status = msgspec.msgpack.Decoder(RankStatus).decode
_decode_stacks = msgspec.msgpack.Decoder(RankStacks | None).decode


class HangService:
    """Hangs of one process's tracers; all in the channel's thread, and briefly."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._watchdogs: dict[TracerHangs, Watchdog] = {}
        """Of tracers, which come and go meanwhile: who goes through it takes a list of it."""
        self.open: tuple[Hang, float] | None = None
        """What was told last and is not over yet, and when by the monotonic clock."""
        self.number = 0
        """Of the next hang."""
        self.told: Bounded[int, str] = Bounded(_MOST_TOLD)
        """The last ones in words, of one that is over what was said last."""
        self._lock = threading.RLock()  # a signal handler may close a tracer
        self._handled: dict[int, int] = {}
        """Exceptions by ``id``, and how many steps had been made when each was seen first."""
        self._hub = HangHub(self)
        self._is_alone = False
        """Whether what is open was told by this rank itself, without the hub."""
        self._said_gone = False
        channel.handlers[STATUS] = lambda _: encode(self.status())
        channel.handlers[STACKS] = self._answer_stacks
        channel.report_handlers[SUSPICION] = self._hub.hear
        channel.notice_handlers[NOTICE] = lambda told: self._take(_decode_hang(told))
        channel.notice_handlers[HUB_GONE] = self._hub_gone
        channel.every(_LOOK_S, self._look)

    def add(self, user: TracerHangs) -> None:
        """Watch a tracer's models from now on."""
        with self._lock:
            self._watchdogs[user] = Watchdog(user, self.status)

    def remove(self, user: TracerHangs) -> None:
        """Watch a tracer no more."""
        with self._lock:
            watchdog = self._watchdogs.pop(user, None)
        news = None if watchdog is None else watchdog.close()
        if news is not None:
            self.channel.report(SUSPICION, encode(news))

    def status(self) -> RankStatus:
        """Return what this rank knows of itself.

        An exception that is handled while steps go by is none of it: training runs in the
        ``except``.
        """
        models, steps = self._models(), self._steps()
        threads = stacks([one for one, at in self._handled.items() if steps > at + 1])
        foreign = [thread for thread in threads if thread.foreign][:_MOST_CALLBACKS]
        return RankStatus(
            rank=self.channel.rank,
            models=look(models, self.channel.clock()),
            main=replace(training_thread(threads, models), frames=()),
            callbacks=tuple(replace(thread, frames=()) for thread in foreign),
            collectives=collectives(),
            paused=any(user.paused for user in list(self._watchdogs)),
        )

    def _models(self) -> list[ModelState]:
        return [model for user in list(self._watchdogs) for model in user.model_states()]

    def _steps(self) -> int:
        return sum(model.position[0] for model in self._models())

    def _look(self) -> None:
        steps = self._steps()
        self._handled = {i: self._handled.get(i, steps) for i in map(id, handled().values())}
        for user, watchdog in list(self._watchdogs.items()):
            news = None if user.paused else watchdog.look()
            if news is not None:
                self.channel.report(SUSPICION, encode(news))
            if news is not None and news.over and self._is_alone and self.open is not None:
                self._take(over(*self.open, news.error))

    def _hub_gone(self, payload: bytes) -> None:
        """Say so once a host; of a call that waits too long meanwhile, tell what is known here."""
        hub = msgspec.msgpack.decode(payload, type=Silent)
        if self.channel.speaks_for_host and not self._said_gone:
            self._said_gone = True
            said = stamped(self.channel.rank, time.time_ns(), hub_is_gone(hub))
            # A log's lock, a disk may be what ranks wait for.
            call_aside(lambda: logger.warning("%s", said), "hooktrace-hang-warn")
        suspected = [one.suspicion for one in list(self._watchdogs.values()) if one.suspicion]
        limits = [one.threshold_ns for one in suspected]
        if self.open is not None or not limits:
            return
        found = waits_without_hub(self.status(), hub, self.channel.world_size)
        # The hub may go on meanwhile, and the ranks to a call that nobody has suspected yet.
        if found is not None and found.is_due(min(limits)):
            self._take(replace(found, hang=self.number), alone=True)

    def _take(self, found: Hang, *, alone: bool = False) -> None:
        self._is_alone = alone
        self.number = max(self.number, found.hang + 1)
        self.told[found.hang] = found.message
        # Under the lock: a tracer that closes meanwhile has been told of the end, or says it.
        with self._lock:
            self.open = None if found.ended_after_ns is not None else (found, time.monotonic())
            for user in self._watchdogs:
                record = found.record(self.channel.rank, user.clock(), time.time_ns())
                user.hear_of_hang(record, speaks=self.channel.speaks_for_host)

    def _answer_stacks(self, wanted: bytes) -> bytes:
        me = self.channel.me
        if me.rank not in msgspec.msgpack.decode(wanted, type=tuple[int, ...]):
            return encode(None)
        return encode(stacks_of(me, "running", stacks_text()))


class HangHub:
    """Finds out why ranks wait, where this rank is the hub; all in the channel's thread."""

    def __init__(self, service: HangService) -> None:
        self._service = service
        self._channel = service.channel
        self._suspicions: dict[tuple[int, str], Suspicion] = {}
        self._error = ""
        self._is_looking = False
        self._changed = asyncio.Event()
        self._excused: tuple[tuple[str, int, int], float] | None = None
        """The call whose missing ranks were excused, and since when they are not."""

    def hear(self, rank: int, payload: bytes) -> bool:
        """Take a rank's suspicion, or that it is over; false where this rank is not the hub."""
        if not self._channel.is_hub:
            return False
        suspicion = msgspec.msgpack.decode(payload, type=Suspicion)
        key = rank, suspicion.place[0]
        if suspicion.over:
            self._suspicions.pop(key, None)
            self._error = suspicion.error or self._error
            self._changed.set()
        else:
            self._suspicions[key] = suspicion
            if not self._is_looking:
                self._is_looking = True
                self._channel.spawn(self._look())
        return True

    async def _look(self) -> None:
        """Find out again and again, as long as somebody suspects something."""
        try:
            pauses = iter(_AGAIN_S)
            while self._suspicions:
                self._changed.clear()
                try:
                    await self._find_out()
                except Exception:  # an answer of another version
                    logger.debug("while a hang was looked at", exc_info=True)
                is_told = self._service.open is not None
                await self._changes(next(pauses, _AGAIN_S[-1]) if is_told else _AGAIN_S[0])
            error, self._error = self._error, ""
            self._end(error)
        finally:
            self._is_looking = False

    async def _changes(self, within_s: float) -> bool:
        """Return whether a suspicion ends within some time."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), within_s)
        return self._changed.is_set()

    async def _find_out(self) -> None:
        first, begun = await self._statuses(_FIRST_S), time.monotonic()
        if await self._changes(max(0.0, _BETWEEN_S - (time.monotonic() - begun))):
            return  # what has not moved in a moment says nothing: a rank has gone on
        asked = time.monotonic()
        last = await self._statuses(_SECOND_S)
        found = diagnose(first, last, self._channel.world_size)
        limits = [one.threshold_ns for one in self._suspicions.values()]
        if found is None or not limits or not self._is_due(found, min(limits), begun):
            return
        known = None if self._service.open is None else self._service.open[0]
        number = self._service.number
        if known is not None and known.place == found.place:
            if known.kind == found.kind:
                return
            number = known.hang
        elif known is not None:
            calls = (call for status in last.answers.values() for call in status.in_flight)
            if any(call.place == known.place for call in calls):
                return  # of two that wait for each other, which waited longest may be a toss-up
            self._end("")
        stacks = await self._stacks(found, last)
        age_ns = found.age_ns + int((time.monotonic() - asked) * 1e9)
        self._tell(replace(found, hang=number, stacks=stacks, age_ns=age_ns))

    def _is_due(self, found: Hang, threshold_ns: int, looked: float) -> bool:
        """Return whether a hang is to be told that was looked at first at that time.

        Ranks that were excused have as long from their excuse's end on as others from the start.
        """
        if found.excused:
            self._excused = found.place, math.inf
        elif self._excused is not None and self._excused[0] == found.place:
            over = min(looked, self._excused[1])
            self._excused = found.place, over
            if time.monotonic() - over < threshold_ns / 1e9:
                return False
        return found.is_due(threshold_ns)

    def _tell(self, found: Hang) -> None:
        self._channel.notice(Notice(NOTICE, encode(found)))

    def _end(self, error: str) -> None:
        """Tell that the hang is over which was told last."""
        if self._service.open is not None:
            self._tell(over(*self._service.open, error))

    async def _stacks(self, found: Hang, last: Round) -> tuple[RankStacks, ...]:
        """Return the stacks of those who are waited for, and of some who wait."""
        wanted = tuple(dict.fromkeys([*found.ranks[: _MOST_STACKS - 1], *found.waiting]))
        wanted = wanted[:_MOST_STACKS]
        answers = await self._ask(STACKS, wanted, _STACKS_S)
        stacks = {rank: stacks_of(one.member, one.state) for rank, one in last.silent.items()}
        told = answers.decoded(_decode_stacks).answers
        stacks |= {rank: one for rank, one in told.items() if one is not None}
        return tuple(stacks[rank] for rank in wanted if rank in stacks)

    async def _statuses(self, timeout_s: float) -> Round:
        return (await self._ask(STATUS, None, timeout_s)).decoded(_decode_status)

    async def _ask(self, name: str, question: object, timeout_s: float) -> Answers[bytes]:
        timeout_s *= 1 + self._channel.world_size / _RANKS_A_SECOND
        return await self._channel.gather(name, encode(question), timeout_s)


def stacks_text() -> str:
    """Return the stacks of all threads but this one, as people read them."""
    return "\n\n".join(stack.text() for stack in stacks())


def stacks_of(member: Member, state: str, text: str = "") -> RankStacks:
    """Return stacks of a rank, as much of them as is sent."""
    text = text[:_MOST_CHARACTERS]
    return RankStacks(rank=member.rank, pid=member.pid, host=member.host, state=state, text=text)


def over(told: Hang, since: float, error: str = "") -> Hang:
    """Return that a hang is over, which was told at a time of the monotonic clock."""
    after = told.age_ns + int((time.monotonic() - since) * 1e9)
    what = "a collective" if told.bucket < 0 else f"{told.name} of step {told.step}"
    whom = f", which had waited for {named_ranks(told.ranks)}" if told.ranks else ""
    how_long = f"at most {time_text(after)}"
    message = f"it went on after {how_long}: {what}{whom} ({told.kind})"
    if error:
        message = f"{what}{whom + ',' if whom else ''} failed after {how_long}: {error}"
    return replace(
        told, message=message, age_ns=after, ended_after_ns=after, failed=bool(error), stacks=()
    )
