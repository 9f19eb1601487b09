"""The channel to the other ranks that the tracers of this process share, and what it is asked.

first tracer that starts --> Channel --ClockRecord--> the tracers that have its clock
JobView <--steps-- all tracers
HangService <--calls in flight-- all tracers
last one that closes --> its end
hooktrace ctl --Command--> all tracers, on a thread of its own, since it may wait --> Done
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..ranks.channel.channel import Channel, channel_of_this_process
from ..ranks.channel.meeting import aside
from ..ranks.control.address import remove_address, write_address
from ..ranks.control.hub import carry_out
from ..ranks.control.messages import QUESTION, STACKS_AT_ONCE, Command, Done, decode_command, encode
from ..ranks.hang.look import look
from ..ranks.hang.messages import ModelStatus
from ..ranks.hang.sentences import seconds
from ..ranks.hang.service import HangService, stacks_text
from ..ranks.native_calls import call_aside
from ..ranks.whole_job.rank_steps import RankSteps
from ..ranks.whole_job.view import JobView
from ..records import ClockRecord
from ..staging.slots import ModelState

if TYPE_CHECKING:
    from .tracer import Tracer


_FLUSH_S = 8.0
_MOST_TEXT = 200_000
_LONG_NS = 1_000_000_000


class TracerControl:
    """Carries commands out; ``tracers`` returns those of this process, ``rank`` is this one."""

    def __init__(self, tracers: Callable[[], list[Tracer]], rank: int) -> None:
        self._tracers = tracers
        self._rank = rank
        self._verbs: dict[str, Callable[[Command], Done]] = {
            "status": lambda _: Done(text=self._status()),
            "stacks": self._stacks,
            "detail": self._detail,
            "probe": self._probe,
            "pause": lambda _: self._record(False),
            "resume": lambda _: self._record(True),
            "flush": lambda _: self._flush(),
        }

    async def carry_out(self, argument: bytes) -> bytes:
        """Return what was done, encoded; raises ``msgspec.DecodeError`` for no command."""
        command = decode_command(argument)
        # Some verbs ask torch's store: where it hangs, the others are carried out all the same.
        return encode(await aside(lambda: self.do(command), f"an earlier {command.verb}"))

    def do(self, command: Command) -> Done:
        """Carry a command out, and say where this rank is."""
        done = self._verbs[command.verb](command)
        steps = {model.name: model.position[0] for model in self._models()}
        return Done(text=done.text, trouble=done.trouble, steps=steps)

    def _models(self) -> list[ModelState]:
        return [model for tracer in self._tracers() for model in tracer.models.all()]

    def _status(self) -> str:
        paused = ["paused"] if not any(tracer.recording for tracer in self._tracers()) else []
        models = [
            _where(status)
            for tracer in self._tracers()
            for status in look(tracer.models.all(), tracer.clock())
        ]
        return ", ".join([*paused, *models]) or "no model yet"

    def _stacks(self, command: Command) -> Done:
        if self._rank not in ([command.rank] if command.rank >= 0 else range(STACKS_AT_ONCE)):
            return Done()
        return Done(text=stacks_text()[:_MOST_TEXT])

    def _detail(self, command: Command) -> Done:
        texts = []
        for tracer in self._tracers():
            for model in tracer.models.all() if tracer.record_files else ():
                first = command.first.get(model.name, model.position[0] + 1)
                for exporter in tracer.record_files:
                    exporter.keep_detail(model.name, first, command.number)
                texts.append(_span(model, first, command.number))
        if not texts:
            return Done(trouble="this rank writes no records: add a RecordFileExporter")
        return Done(text="; ".join(texts))

    def _probe(self, command: Command) -> Done:
        texts = []
        for model in self._models():
            first = command.first.get(model.name)
            if first is None:
                return Done(
                    trouble="the ranks did not say in time which step they are at; ask again"
                )
            if model.sampling is not None and model.sampling.replan(first, command.number):
                # The training thread may be about to say when it looks next: it is to look again.
                model.sampling.asked = True
                model.sample_step = 0
                texts.append(_span(model, first, command.number))
        if texts:
            return Done(text="; ".join(texts))
        return Done(trouble="nothing is sampled, by Tracer(error_every=0) or as the log says")

    def _record(self, on: bool) -> Done:
        for tracer in self._tracers():
            tracer.recording = on
        return Done(text="recording" if on else "paused")

    def _flush(self) -> Done:
        flushed = [tracer.flush(_FLUSH_S) for tracer in self._tracers()]
        if not all(flushed):
            return Done(trouble=f"what was recorded is not exported after {_FLUSH_S:.0f} s")
        return Done(text="flushed")


def _span(model: ModelState, first: int, number: int) -> str:
    """Say which steps it is; this rank may be past the first one, or all of them, already."""
    begins, last = max(first, model.position[0] + 1), first + number - 1
    if begins > last:
        return f"{model.name}: none, this rank is past steps {first} to {last}; ask once more"
    return f"{model.name}: steps {begins} to {last}"


def _where(status: ModelStatus) -> str:
    """Say where a model is, and what it has waited for longest, if that is worth the name."""
    text = f"{status.model} ({status.hook}) at step {status.step}"
    oldest = max(status.in_flight, key=lambda call: call.age_ns, default=None)
    if oldest is None or oldest.age_ns < _LONG_NS:
        return text
    what = f"{oldest.stage} {oldest.collective}".rstrip()
    return f"{text}, {oldest.name} in {what} for {seconds(oldest.age_ns)}"


logger = logging.getLogger("hooktrace")


class _Shared:
    """One process's channel, and who uses it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal handler may close a tracer meanwhile
        self.files = threading.RLock()
        """For who writes or removes the files that say where the hub is."""
        self.channel: Channel | None = None
        self.view: JobView | None = None
        self.hangs: HangService | None = None
        self.users: dict[Tracer, RankSteps | None] = {}

    def begin(self, user: Tracer) -> None:
        """Start the channel, and what goes over it."""
        self.channel = channel = channel_of_this_process(user.clock, self.take)
        own = TracerControl(lambda: list(self.users), channel.rank)
        channel.handlers[QUESTION] = own.carry_out
        channel.control_handlers[QUESTION] = partial(carry_out, channel)
        write = partial(self._write_address, channel)
        channel.on_hub = lambda: call_aside(write, "hooktrace-address")  # a disk takes its time
        view = JobView(channel)
        channel.start()
        self.view = view
        self.hangs = HangService(channel)

    def _write_address(self, channel: Channel) -> None:
        """Say beside the records where the hub is, unless it has ended meanwhile."""
        with self.files:
            address = channel.hub if self.channel is channel else None
            for logdir in {logdir for user in list(self.users) for logdir in user.logdirs}:
                if address is not None:
                    with suppress(OSError):
                        write_address(logdir, address)

    def take(self, record: ClockRecord) -> None:
        """Hand a measurement on."""
        channel = self.channel
        for user in list(self.users):
            if user.align_clocks and channel is not None and user.clock is channel.clock:
                user.push(record)


_shared = _Shared()


def join(user: Tracer) -> Channel | None:
    """Return the channel, which begins with its first user; ``None`` where it cannot begin."""
    with _shared.lock:
        _shared.users[user] = None
        if _shared.channel is None:
            try:
                _shared.begin(user)
            except Exception as error:  # no thread, no descriptor, no process group any more
                _shared.channel = None
                logger.warning(
                    "this rank has no channel to the others (%s: %s): hangs are not explained and "
                    "clocks not compared; raise the limits of threads and files (ulimit -u, -n)",
                    type(error).__name__,
                    error,
                )
        if _shared.view is not None and _shared.users[user] is None:
            part = _shared.users[user] = _shared.view.rank_steps(user.clock_offset, user.push)
            user.hear(part.add)
        if _shared.hangs is not None:
            _shared.hangs.add(user.hang_watch)
        if _shared.channel is not None and _shared.channel.is_hub:
            _shared.channel.on_hub()  # there may be one more place to say it
        return _shared.channel


def leave(user: Tracer) -> None:
    """End the channel with its last user."""
    with _shared.lock:
        if user not in _shared.users:
            return
        part = _shared.users.pop(user)
        with _shared.files:
            for logdir in user.logdirs:
                remove_address(logdir)
        if _shared.view is not None and part is not None:
            _shared.view.forget(part)
        if _shared.hangs is not None:
            _shared.hangs.remove(user.hang_watch)
        if _shared.users:
            return
        _shared.hangs = None
        channel, _shared.channel, _shared.view = _shared.channel, None, None
    if channel is not None:
        channel.close()


def _begin_in_child() -> None:
    global _shared  # the one of this process
    of_the_parent, _shared = _shared, _Shared()
    if of_the_parent.channel is not None:
        of_the_parent.channel.close_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
