"""The channel of a process: its thread, and what the rest of hooktrace asks of it.

    users --report, from any thread; gather, notice--> the tree of ranks (node.py, parent.py)

One daemon thread runs one asyncio loop.  It never waits for a collective, for torch's store, or for
a lock that another thread holds for long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch.distributed as dist

from ...records import ClockRecord
from ...staging.calls import Clock
from ...staging.job import current_rank, job_store
from .clock import ClockOffset
from .meeting import Meeting
from .messages import Member, Report
from .node import Node
from .parent import Membership
from .process import member_of

logger = logging.getLogger("hooktrace")

_END_S = 0.5
_ROUND_S = 0.001
"""In which the loop sends goodbyes, and closes sockets."""


class Channel(Node):
    """This process's place among the ranks of its job, from ``start`` to ``close``.

    ``me``: one of ``world_size`` ranks that meet in ``store``; without one it is alone.
    ``clock``: is compared with rank 0's.  ``report_clock``: gets each measurement.
    """

    def __init__(
        self,
        me: Member,
        world_size: int,
        store: Any,
        clock: Clock,
        report_clock: Callable[[ClockRecord], None],
    ) -> None:
        super().__init__(me, world_size, ClockOffset(clock, report_clock))
        self._membership = Membership(self, None if store is None else Meeting(store))
        self._selector = selectors.DefaultSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="hooktrace-channel", daemon=True)

    def start(self) -> None:
        """Start the thread.  Raises ``RuntimeError`` where the system gives none."""
        self._thread.start()

    def report(self, name: str, payload: bytes) -> None:
        """Tell the hub, which may be this rank."""
        report = Report(name, self.rank, payload)
        self.run(lambda: self.reported(report))

    def run(self, work: Callable[[], object]) -> None:
        """Do something in the channel's thread, soon; nothing where it has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(work)

    def every(self, period_s: float, work: Callable[[], None]) -> None:
        """Do something in the channel's thread again and again; what it raises ends nothing."""

        async def repeat() -> None:
            while True:
                try:
                    work()
                except Exception:
                    logger.debug("in the channel between ranks", exc_info=True)
                await asyncio.sleep(period_s)

        self.run(lambda: self.spawn(repeat()))

    def close(self) -> None:
        """Say goodbye, end the thread, and close all connections."""
        self.run(self._ended.set)
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def close_in_child(self) -> None:
        """In a forked child: let go of descriptors, so that the others see when the parent ends.

        The loop stays: to end it would change what the parent waits for.
        """
        _of_the_parent.append(self)
        for key in list((self._selector.get_map() or {}).values()):
            with suppress(OSError):
                os.close(key.fd)

    def _run(self) -> None:
        # What a connection or a task raises, or accepting where there are no descriptors left.
        self._loop.set_exception_handler(lambda _, trouble: logger.debug("%s", trouble["message"]))
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self.spawn(self._stay())
        await self._ended.wait()
        for task in self.tasks:
            task.cancel()
        above = [] if self.parent is None else [self.parent]
        connections = [*self.children.connections(), *above]
        for connection in connections:
            connection.leave("end")
        self.children.close()
        await asyncio.sleep(_ROUND_S)
        for connection in connections:
            connection.transport.abort()  # of whom the other side reads nothing
        await asyncio.sleep(_ROUND_S)

    async def _stay(self) -> None:
        try:
            await self._membership.stay()
        except Exception as error:  # of sockets, of torch's store: none of training's business
            self.children.close()  # nobody would serve who comes
            self.is_hub, self.hub = False, None
            logger.warning(
                "this rank has no channel to the others (%s: %s): clocks are not compared, a view "
                "of all ranks may be off by what they differ, and hangs are not explained",
                type(error).__name__,
                error,
            )


def channel_of_this_process(clock: Clock, report_clock: Callable[[ClockRecord], None]) -> Channel:
    """Return the channel of torch's default process group, or of a process without one."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    rank = current_rank() if several else 0
    store, size = (job_store(), dist.get_world_size()) if several else (None, 1)
    return Channel(member_of(rank, os.getpid()), size, store, clock, report_clock)


_of_the_parent: list[object] = []
