"""The channel to the other ranks that the tracers of this process share.

first tracer that starts --> Channel --ClockRecord--> the tracers that have its clock
                             JobView <--steps-- all tracers
                             HangService <--calls in flight-- all tracers
last one that closes --> its end
"""

from __future__ import annotations

import logging
import os
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..ranks.channel.channel import Channel, channel_of_this_process
from ..ranks.channel.meeting import aside
from ..ranks.control.address import HubAddress, remove_address, write_address
from ..ranks.control.hub import ControlHub
from ..ranks.control.messages import QUESTION
from ..ranks.hang.service import HangService
from ..ranks.whole_job.rank_steps import RankSteps
from ..ranks.whole_job.view import JobView
from ..records import ClockRecord
from .control import TracerControl
from .hangs import hang_service

if TYPE_CHECKING:
    from .tracer import Tracer

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
        rank = channel.node.me.rank
        channel.answer(QUESTION, TracerControl(lambda: list(self.users), rank).carry_out)
        channel.on_control(QUESTION, ControlHub(channel.node).carry_out)
        channel.on_hub = lambda: channel.spawn(lambda: self._write_address(channel))
        view = JobView(channel, rank, channel.node.world_size)
        channel.start()
        self.view = view
        self.hangs = hang_service(channel)

    async def _write_address(self, channel: Channel) -> None:
        """Say beside the records where the hub is; a disk may take its time."""
        me = channel.node.me
        address = HubAddress(
            places=channel.places, token=channel.token.hex(), host=me.host, pid=me.pid
        )
        for logdir in {logdir for user in list(self.users) for logdir in user.logdirs}:
            await aside(partial(self._write_where_used, channel, logdir, address), "the disk")

    def _write_where_used(self, channel: Channel, logdir: Path, address: HubAddress) -> None:
        """Write it, unless whoever writes records there has closed meanwhile."""
        with self.files:
            used = {logdir for user in list(self.users) for logdir in user.logdirs}
            if self.channel is channel and logdir in used:
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
        hangs, _shared.hangs = _shared.hangs, None
        channel, _shared.channel, _shared.view = _shared.channel, None, None
    if hangs is not None:
        hangs.close()
    if channel is not None:
        channel.close()


def _begin_in_child() -> None:
    global _shared  # the one of this process
    of_the_parent, _shared = _shared, _Shared()
    if of_the_parent.channel is not None:
        of_the_parent.channel.close_in_child()


os.register_at_fork(after_in_child=_begin_in_child)
