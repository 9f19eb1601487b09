"""The serial lane: whole chains of collectives, one after another, in the order of submission.

On a backend whose callbacks run on worker threads, collectives that are issued from callbacks
would pair up differently on each rank.  A chain (all rounds of one hook call) therefore starts only
when the chain before it has ended.  Submissions come from the training thread in bucket order, so
the order of all collectives is the same on every rank.  There is one lane a process: models that
share a group keep their order too.  Where callbacks run inline (NCCL), a chain has ended before
``submit`` returns, and the lane is never busy.

    submit(start) --busy?--> waiting ...
         |no                     |
       start()                 start()  <- called by the thread that ended the chain before
         |                       |
      release() ------------> next one
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["LANE", "SerialLane"]


class SerialLane:
    """Runs chains one at a time; a chain calls ``release`` when it has ended, well or badly."""

    __slots__ = ("_busy", "_condition", "_released", "_starting", "_waiting")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, as in a forked child, which has none of the chains' threads."""
        self._condition = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False
        self._starting = False
        self._released = False

    def submit(self, start: Callable[[], None]) -> None:
        """Call ``start`` now if the lane is free, else when its turn comes.

        Whatever ``start`` does, it must see to it that ``release`` is called once.
        """
        with self._condition:
            self._waiting.append(start)
            if self._busy:
                return
            self._busy = True
        self._pump()

    def release(self) -> None:
        """End the running chain and start the next one, on this thread."""
        with self._condition:
            if self._starting:
                # The chain ended inside its own start: the loop that called it goes on.  Starting
                # the next one here would nest as deep as there are chains.
                self._released = True
                return
        self._pump()

    def _pump(self) -> None:
        """Start chains until one of them stays under way, or none is left."""
        while True:
            with self._condition:
                if not self._waiting:
                    self._busy = False
                    self._condition.notify_all()
                    return
                start = self._waiting.popleft()
                self._starting, self._released = True, False
            try:
                start()
            except BaseException:
                if self._ended_inside():
                    self._pump()
                raise
            if not self._ended_inside():
                return

    def _ended_inside(self) -> bool:
        with self._condition:
            self._starting = False
            return self._released

    def drained(self) -> bool:
        """Block until no chain runs or waits; returns true.

        Called on the training thread after the last bucket of a backward pass was submitted, where
        DDP would wait for the same futures anyway.  It keeps DDP's next collectives on the group
        (the map of unused parameters, buffers) behind those of the lane on every rank.
        """
        with self._condition:
            return self._condition.wait_for(lambda: not self._busy)


LANE = SerialLane()
"""The lane of this process."""

os.register_at_fork(after_in_child=LANE.reset)
