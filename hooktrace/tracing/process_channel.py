"""A tracer as one of its job's: the channel to the other ranks, commands, and hangs.

    first tracer that starts --join--> Channel --ClockRecord--> the tracers that have its clock
                                       JobView <--steps-- all tracers
                                       HangService <--TracerHangs: calls in flight-- all tracers
    last one that closes --leave--> its end        --HangRecord--> ring; log, dump or abort

    tracer.command, hooktrace ctl --Command--> the hub --> TracerControl of all ranks --Done-->

A command is carried out on a thread of its own, since it may wait.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..ranks.channel.channel import Channel, channel_of_this_process
from ..ranks.channel.meeting import aside
from ..ranks.channel.messages import encode
from ..ranks.control import (
    MOST_STACKS,
    QUESTION,
    STACKS_AT_ONCE,
    Command,
    Done,
    carry_out,
    decode_command,
    remove_address,
    write_address,
)
from ..ranks.hang.collectives import collectives
from ..ranks.hang.look import look
from ..ranks.hang.messages import ModelStatus, stamped
from ..ranks.hang.service import HangService, stacks_text
from ..ranks.native_calls import call_aside
from ..ranks.whole_job.view import JobView, RankSteps
from ..records import ClockRecord, HangRecord
from ..records.files import record_path
from ..records.units import time_text
from ..staging.calls import Clock
from ..staging.ring import State
from ..staging.slots import ModelState
from .options import OnHang

if TYPE_CHECKING:
    from .tracer import Tracer

logger = logging.getLogger("hooktrace")


_FLUSH_S = 8.0
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
        return replace(done, steps={model.name: model.position[0] for model in self._models()})

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
        rank = self._rank
        if command.rank < 0 and rank == STACKS_AT_ONCE:
            said = f"its stacks and later ranks' are left out; ask for one rank's: stacks {rank}"
            return Done(text=said)
        if rank not in ([command.rank] if command.rank >= 0 else range(STACKS_AT_ONCE)):
            return Done()
        return Done(text=stacks_text().encode()[:MOST_STACKS].decode(errors="ignore"))

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
    return f"{text}, {oldest.name} in {what} for {time_text(oldest.age_ns)}"


class _Shared:
    """One process's channel and what goes over it, for the tracers that use it."""

    def __init__(self, clock: Clock) -> None:
        self.users: dict[Tracer, RankSteps] = {}
        self._files = threading.RLock()
        """For who writes or removes the files that say where the hub is."""
        self.channel = channel = channel_of_this_process(clock, self.take)
        own = TracerControl(lambda: list(self.users), channel.rank)
        channel.handlers[QUESTION] = own.carry_out
        channel.control_handlers[QUESTION] = partial(carry_out, channel)
        # A disk takes its time.
        channel.on_hub = lambda: call_aside(self._write_address, "hooktrace-address")
        self._hangs = HangService(channel)
        self._view = JobView(channel, self._hangs.told, lambda: list(self.users.values()))
        channel.start()

    def join(self, user: Tracer) -> None:
        """Take a tracer."""
        self.users[user] = part = self._view.rank_steps(user.clock_offset, user.push)
        user.listeners.append(part.add)
        self._hangs.add(user.hang_watch)
        if self.channel.is_hub:
            self.channel.on_hub()  # there is one more place to say it

    def leave(self, user: Tracer) -> bool:
        """Let go of a tracer; return whether it was the last one."""
        part = self.users.pop(user, None)
        if part is None:
            return False
        with self._files:
            for exporter in user.record_files:
                remove_address(exporter.logdir)
        self._hangs.remove(user.hang_watch)
        return not self.users

    def _write_address(self) -> None:
        """Say beside the records of those who use it, by now, where the hub is."""
        with self._files:
            address = self.channel.hub
            for logdir in {one.logdir for user in list(self.users) for one in user.record_files}:
                if address is not None:
                    with suppress(OSError):
                        write_address(logdir, address)

    def take(self, record: ClockRecord) -> None:
        """Hand a measurement on."""
        for user in list(self.users):
            if user.align_clocks and user.clock is self.channel.clock:
                user.push(record)


_shared: _Shared | None = None
_lock = threading.RLock()  # a signal handler may close a tracer meanwhile


def join(user: Tracer) -> Channel | None:
    """Return the channel, which begins with its first user; ``None`` where it cannot begin."""
    global _shared  # noqa: PLW0603  # the one of this process
    with _lock:
        try:
            shared = _shared = _shared or _Shared(user.clock)
        except Exception as error:  # no thread, no descriptor, no process group any more
            logger.warning(
                "this rank has no channel to the others (%s: %s): hangs are not explained and "
                "clocks not compared; raise the limits of threads and files (ulimit -u, -n)",
                type(error).__name__,
                error,
            )
            return None
        shared.join(user)
    if user.state is State.CLOSED:  # by a signal handler, meanwhile
        leave(user)
    return shared.channel


def leave(user: Tracer) -> None:
    """End the channel with its last user."""
    global _shared  # noqa: PLW0603
    with _lock:
        ended = _shared
        if ended is None or not ended.leave(user):
            return
        _shared = None
    ended.channel.close()


def _begin_in_child() -> None:
    global _shared, _lock
    of_the_parent, _shared, _lock = _shared, None, threading.RLock()
    if of_the_parent is not None:
        of_the_parent.channel.close_in_child()


os.register_at_fork(after_in_child=_begin_in_child)


EXIT_CODE = 75
"""Of a process that ``on_hang="abort"`` ends: a failure that may pass when it is tried again."""

_LAST_FLUSH_S = 5.0
"""What was recorded has that long to reach the exporters before the end."""

_ENOUGH = 20
"""Buckets of a model that say what is usual."""


class TracerHangs:
    """A tracer among those that are watched, with the options of ``Tracer``."""

    def __init__(self, tracer: Tracer, hang_after_s: float | None, on_hang: OnHang) -> None:
        self.hang_after_s = hang_after_s
        self.clock = tracer.clock
        self._tracer = tracer
        self._on_hang = on_hang
        self.model_states = tracer.models.all
        self.paused: list[None] = []
        """One for each block in which somebody has said that it may take long."""

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Be paused until the end of the ``with`` block; may be nested, in several threads."""
        self.paused.append(None)
        try:
            yield
        finally:
            self.paused.pop()

    def usual_ns(self, model: str) -> int | None:
        """Return the 99th percentile of a model's bucket durations, ``None`` where unknown."""
        kept = self._tracer.buckets(model, wait=False)
        durations = sorted(one.done_ns - one.ready_ns for one in kept if not one.bounded)
        return durations[len(durations) * 99 // 100] if len(durations) >= _ENOUGH else None

    def hear_of_hang(self, record: HangRecord, *, speaks: bool) -> None:
        """Take a record, and do as ``on_hang`` says; ``speaks``: for all ranks of this host."""
        self._tracer.push(record)
        said = f"hang: {record.message}"
        if record.ended_after_ns is None:
            said += f"; see {record.docs}"
        line = stamped(record.rank, time.time_ns(), said) if speaks else ""
        if self._on_hang != "record":
            # A log's lock, a disk may be what ranks wait for: not on the thread that answers here.
            call_aside(partial(self._act, record, line), "hooktrace-hang-" + self._on_hang)

    def _act(self, record: HangRecord, line: str) -> None:
        is_new = record.ended_after_ns is None
        if is_new and self._on_hang == "abort":
            try:
                self._tracer.flush(_LAST_FLUSH_S)
            finally:
                # Not through logging: what handles it may be what hangs.
                said = f"hooktrace ends rank {record.rank} (on_hang='abort'): {record.message}\n"
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, said.encode())
                os._exit(EXIT_CODE)
        if line:
            logger.warning("%s", line)
        if is_new and self._on_hang == "dump":
            self._dump(record)

    def _dump(self, record: HangRecord) -> None:
        """Write what this rank knows: the sentence, its calls, torch's collectives, its stacks."""
        lines = [record.message, ""]
        for model in look(self.model_states(), self.clock()):
            lines.append(f"{model.model}: step {model.step}, {model.name}")
            lines += [
                f"  {call.name} of step {call.step} for {call.age_ns / 1e9:.1f} s: "
                f"{call.stage} {call.collective}".rstrip()
                for call in model.in_flight
            ]
        known = collectives()
        pending = [] if known is None else known.pending
        told = "nothing" if known is None else f"of {len(pending)} pending collective(s)"
        lines += ["", f"torch's Flight Recorder tells {told}"]
        lines += [
            f"  {one.kind} of {one.numel:,} elements, number {one.number} of group {one.name!r}"
            for one in pending
        ]
        text = "\n".join([*lines, "", stacks_text(), ""])
        folders = [record_path(one.logdir, 0).parent for one in self._tracer.record_files]
        for folder in folders or [Path.cwd()]:
            path = folder / f"hang{record.hang:03}-rank{record.rank:05}.txt"
            try:
                path.write_text(text)
            except OSError as error:
                logger.warning("the hang's stacks could not be written (%s): %s", path, error)
            else:
                logger.warning("the hang's stacks of this rank are in %s", path)
