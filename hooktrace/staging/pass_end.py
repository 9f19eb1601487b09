"""Steps that are not timed: their calls are looked at when the backward pass ends.

    first call of a step --is_timed--> one step in ten: callbacks stamp when its calls end
    others: AwaitedCall.awaited --the pass ends--> it has arrived: done by then, nobody knows when
                                                   it has not: a callback --> done
                                --DDP has waited--> done, where no callback was first
    the last call of a hook: timed in each step, since no other hook comes after it

A callback of Python's costs more than the rest of a call: on the backend's thread it competes with
the next bucket's hook for the interpreter lock.  So nine steps in ten have none before the pass
ends.  What has arrived by then is not exposed.  For the rest DDP waits next, without the lock.  So
each step knows what it exposes, and one in ten knows when each bucket was done.  Buckets that have
arrived by the end of the pass count as no later than the last one.  A pass is watched from the
first call on that its hook leaves pending: of hooks that are done at once none is.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch

from ..records.bucket import ALL_TIMED, TIMED_ONE_IN
from .backward import at_pass_end, call_all, current_pass, waits_later
from .calls import END_UNKNOWN, NOT_YET, BucketCall, StepCalls
from .job import new_lock

if TYPE_CHECKING:
    from .slots import ModelState

ends_once = new_lock()
"""Of a collective's thread and the one that waits for it: who stamps the end of a call.  A pass may
be let go of while it is held."""

_done = torch._C.Future.done
_add_callback = torch._C.Future.add_done_callback


class AwaitedCall(BucketCall):
    """A call that is looked at when its pass ends; called when it arrives later than that.

    ``awaited``: torch's future or work, where nothing else says when it ends.
    """

    __slots__ = ()

    awaited: Any = None

    def __call__(self, future: Any) -> None:
        """Stamp that it has arrived."""
        with ends_once:
            if self.done == NOT_YET:
                try:
                    future.value()
                except Exception as error:  # DDP raises it too, where it waits
                    self.error_stage, self.error = "wire", f"{type(error).__name__}: {error}"
                self.end()

    def end(self, at: int | None = None) -> None:
        """Stamp that it has arrived, ``at`` or now, unless something has."""
        with ends_once:
            if self.done != NOT_YET:
                return
            self.awaited = None
            try:
                self.arrived_at = self.clock() if at is None else at
            except Exception as failed:
                self.lose_end(failed)
                return
            self.operation, self.collective = None, self.slot.collective
            self.done = self.arrived_at

    @property
    def in_flight(self) -> bool:
        """Whether somebody may wait for it."""
        awaited = self.awaited
        return not (self.has_ended or (awaited is not None and self.is_done(awaited)))

    def is_done(self, awaited: Any) -> bool:
        """Return whether what it waits for is done."""
        return _done(awaited)

    def call_when_done(self) -> None:
        """Have it called when what it waits for is done, which may be so already."""
        if self.awaited is not None:
            _add_callback(self.awaited, self)

    def pass_ended(self, backward_end: int | None) -> None:
        """Take note that it has arrived, or have it called when it does.

        ``backward_end``: of its pass; where there is none, DDP need not wait for it next.
        """
        ended = backward_end not in {None, NOT_YET, END_UNKNOWN}
        if ended and self.awaited is not None and self.is_done(self.awaited):
            self.arrived_by = backward_end
        else:
            self.call_when_done()

    def waited_for(self, failed: bool) -> None:
        """DDP has waited: what has no end has arrived, just now; ``failed``: it has raised.

        It need not have waited for this: a hook may call another, and not wait for that.
        """
        if failed and self.arrived_by is not None:
            self.call_when_done()
        elif not failed and (self.awaited is None or self.is_done(self.awaited)):
            self.end(self.arrived_by)


def is_timed(model: ModelState, step: int) -> bool:
    """Return whether callbacks are to stamp when the calls of a step end."""
    return step - model.first_step < ALL_TIMED or step % TIMED_ONE_IN == 0 or model.all_timed


def watch_pass(calls: StepCalls) -> bool:
    """Have the calls of a step looked at when the pass ends that runs here; false: none runs.

    Called for the first call that needs it, and again for the last one: that may be in another
    pass, as under re-entrant checkpoints, at whose end DDP waits.
    """
    task = current_pass()
    if calls.watched_pass != task and at_pass_end(partial(_end_pass, calls)):
        calls.watched_pass = task
    return calls.watched_pass == task


def _end_pass(calls: StepCalls, failed: bool) -> None:
    """The pass has nothing left to compute: see what has arrived; DDP waits for the rest."""
    last, awaited = calls[-1], cast("list[AwaitedCall]", calls)
    if not last.slot.is_last:  # the step may go on in another pass
        calls.untimed = False
        if not failed:
            at_pass_end(partial(_waited, calls))
        call_all([call.pass_ended for call in awaited], END_UNKNOWN if failed else None)
        return
    waits = not failed and not waits_later(last.slot.model.ddp)
    if last.backward_end == NOT_YET:
        last.backward_over(not waits)
    if waits:
        at_pass_end(partial(_waited, calls))
    end = END_UNKNOWN if failed else last.backward_end
    call_all([call.pass_ended for call in awaited if call.bounded], end)


def _waited(calls: StepCalls, failed: bool) -> None:
    """DDP has waited for the calls of a pass, or raised."""
    awaited = cast("list[AwaitedCall]", calls)
    left = [call for call in awaited if call.done == NOT_YET or call.error is not None]
    call_all([call.waited_for for call in left], failed)
