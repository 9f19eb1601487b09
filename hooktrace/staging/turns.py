"""Hooks of several rounds: their calls take turns, which the sequencer gives.

    take_turns --submit--> the future for DDP
    sequencer  --its turn--> advance, issue, arrive, and again

DDP gets a future of the call's own.  No callback waits.  Where callbacks run inline (NCCL), all of
it happens inside ``take_turns``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .driver import Ended, Future, HookRun, new_future
from .operation import Operation
from .round_groups import round_group
from .sequencer import Sequencer


def take_turns(run: HookRun, sequencer: Sequencer) -> Future:
    """Run a hook with several rounds when its turn comes; returns the future of its result."""
    return _Turn(run).submit(sequencer)


class _Turn:
    """A call with several rounds, and the future that DDP waits for.

    ``add_done_callback`` only logs what a callback raises, so a failure completes the future, and
    the ``then`` at its end raises it where DDP sees it.
    """

    __slots__ = ("_future", "_run", "_sequencer")

    def __init__(self, run: HookRun) -> None:
        self._run = run

    def submit(self, sequencer: Sequencer) -> Future:
        """Wait for the calls before this one, then run; returns the future at once."""
        # Taken first: the call may have ended, and its bucket be gone, when submit returns.
        bucket = self._run.bucket
        is_last = bucket.is_last()
        self._future = new_future(bucket.buffer())
        self._sequencer = sequencer
        result = self._future.then(_unwrap)
        sequencer.submit(self._begin)
        if is_last:
            sequencer.wait_until_idle()
        return result

    def _begin(self) -> None:
        call = self._run.call
        if call is not None:
            call.begun()
        self._go_on(None)

    def _go_on(self, arrived: Future | None) -> None:
        run = self._run
        try:
            step = run.advance(None if arrived is None else run.arrive(arrived))
            if not isinstance(step, Ended):
                self._only_rounds(step)
                run.issue(step).add_done_callback(self._go_on)
                return
        except BaseException as error:
            if self._future.done():  # a later round, which ran inline, was interrupted
                raise
            self._end(self._future.set_exception, _as_exception(error))
            if not isinstance(error, Exception):
                raise
        else:
            self._end(self._future.set_result, step.result)

    def _only_rounds(self, operation: Operation) -> None:
        """Have an operation issued on a group where only rounds are."""
        group = getattr(operation, "group", None)  # not every operation has one
        if group is not None:
            try:
                operation.group = round_group(group, operation.tensor)
            except BaseException as error:
                self._run.fail("wire", error)

    def _end(self, complete: Callable[[Any], None], value: Any) -> None:
        try:
            complete(value)
        finally:
            self._sequencer.release()


def _as_exception(error: BaseException) -> Exception:
    """Return what a future can hold."""
    if isinstance(error, Exception):
        return error
    return RuntimeError(f"{type(error).__name__} ended the hook")


def _unwrap(future: Future) -> torch.Tensor:
    """Return the value, or raise the exception: DDP would read an exception as the value."""
    return future.value()  # type: ignore[no-any-return]
