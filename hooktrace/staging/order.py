"""The order of collectives: calls of multi-round hooks run one after another, as they came.

    take_turns --> submit(start) --busy?--> waiting ...
                        |no                     |
                      start()                 start()  <- by the thread that ended the call before
                        |                       |         a turn: go_on, and again
                     release() ------------> next one

Where callbacks run on worker threads, collectives that are issued from them would pair up
differently on each rank.  So a call with several rounds starts only when the one before it on its
group has ended: calls come from the training thread in bucket order, the same on every rank.  DDP
gets a future of the call's own.  No callback waits.  Where callbacks run inline (NCCL), a call has
ended before ``submit`` returns.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .driver import Ended, Future, StagedRun, new_future
from .job import new_lock


class Sequencer:
    """Runs calls one at a time; each calls ``release`` when it has ended, well or badly."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, as in a forked child, which has none of the calls' threads."""
        self._condition = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False
        self._starting = False

    def submit(self, start: Callable[[], None]) -> None:
        """Call ``start`` now if nothing runs, else when its turn comes.

        Whatever ``start`` does, it must see to it that ``release`` is called once.
        """
        with self._condition:
            self._waiting.append(start)
        self._pump()

    def release(self) -> None:
        """End the running call and start the next one, on this thread."""
        with self._condition:
            self._busy = False
        self._pump()

    def _pump(self) -> None:
        """Start calls until one of them stays under way, or none is left.

        One that ends inside its own start leaves the next one to this loop, and nests none.
        """
        while True:
            with self._condition:
                if self._busy or self._starting:
                    return
                if not self._waiting:
                    self._condition.notify_all()
                    return
                start = self._waiting.popleft()
                self._busy = self._starting = True
            try:
                start()
            except BaseException:
                self._starting = False
                self._pump()
                raise
            self._starting = False

    def wait_until_idle(self) -> bool:
        """Block until no call runs or waits; returns true.

        After a pass's last bucket, so that DDP's next collectives on the group (the map of unused
        parameters, buffers) come behind those of multi-round hooks on every rank.
        """
        with self._condition:
            return self._condition.wait_for(lambda: not (self._busy or self._waiting))


_lock = new_lock()
_sequencers: weakref.WeakKeyDictionary[object, Sequencer] = weakref.WeakKeyDictionary()
_of_no_group = Sequencer()


def sequencer_of(group: object | None) -> Sequencer:
    """Return the sequencer of a process group; ``None``: of hooks whose state names no group."""
    if group is None:
        return _of_no_group
    with _lock:
        sequencer = _sequencers.get(group)
        if sequencer is None:
            sequencer = _sequencers[group] = Sequencer()
        return sequencer


def _reset_all() -> None:
    """Begin anew in a forked child."""
    for sequencer in (_of_no_group, *_sequencers.values()):
        sequencer.reset()


os.register_at_fork(after_in_child=_reset_all)


def take_turns(run: StagedRun, sequencer: Sequencer) -> Future:
    """Run a hook with several rounds when its turn comes; returns the future of its result."""
    # Taken first: the call may have ended, and its bucket be gone, when submit returns.
    is_last = run.bucket.is_last()
    future = new_future(run.bucket.buffer())
    result = future.then(_unwrap)
    sequencer.submit(_Turn(run, future, sequencer).begin)
    if is_last:
        sequencer.wait_until_idle()
    return result


@dataclass(eq=False, slots=True)
class _Turn:
    """A call with several rounds, and the future that it completes.

    A failure completes it too, since ``add_done_callback`` only logs what a callback raises; the
    ``then`` at its end raises it where DDP sees it.
    """

    run: StagedRun
    future: Future
    sequencer: Sequencer

    def begin(self) -> None:
        """Begin the hook."""
        if self.run.recorder is not None:
            self.run.stamp("started")
        self._go_on(None)

    def _go_on(self, arrived: Future | None) -> None:
        try:
            step = self.run.go_on(arrived)
            if not isinstance(step, Ended):
                step.add_done_callback(self._go_on)
                return
        except BaseException as error:
            if self.future.done():  # a later round, which ran inline, was interrupted
                raise
            if isinstance(error, Exception):
                self._end(self.future.set_exception, error)
                return
            ended = RuntimeError(f"{type(error).__name__} ended the hook")  # a future can hold it
            self._end(self.future.set_exception, ended)
            raise
        else:
            self._end(self.future.set_result, step.result)

    def _end(self, complete: Callable[[Any], None], value: Any) -> None:
        try:
            complete(value)
        finally:
            self.sequencer.release()


def _unwrap(future: Future) -> torch.Tensor:
    """Return the value, or raise the exception: DDP would read an exception as the value."""
    return future.value()  # type: ignore[no-any-return]
