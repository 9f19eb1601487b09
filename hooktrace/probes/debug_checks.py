"""Debug mode: every bucket of every step is looked at on its own rank.

    hook is called    are the gradients finite?
    hook's future     is the result finite?  its checksum
    backward is over  has the checksum changed?
    drain             DebugResult, once it has come to the host --> anomalies

Nothing is sent, and nothing waits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from ..staging.backward import queue_callback
from ..staging.slots import BucketSlot, in_backward
from ..staging.streams import keep_for_current_stream
from .compare import digest, finite_parts, lengths_of
from .debug_result import DebugResult
from .step_sampler import CallStart, Future, Look, Part

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

logger = logging.getLogger("hooktrace")


class DebugChecks(Part):
    """Looks at one model's buckets in every step; on the thread of its backward pass."""

    def __init__(self) -> None:
        self.next_step = 0
        self._step: list[CheckedCall] = []
        self._failed = False

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Look at a bucket before its hook does; raises nothing."""
        slot = start.slot
        if self._failed or not slot.is_dense:
            return False
        if sum(lengths_of(slot.parameters)) != slot.numel:
            return False  # complex gradients, which are two real ones each
        try:
            start.looks.append(self._enter(start, sink))
        except Exception:
            self.fail(slot)
        return True

    def fail(self, slot: BucketSlot) -> None:
        """End the checks after an exception of their own, which is logged; training goes on."""
        if not self._failed:
            self._failed = True
            logger.exception("debug checks of %s end here; training goes on", slot.model.name)

    def _enter(self, start: CallStart, sink: Tracer) -> CheckedCall:
        slot, bucket = start.slot, start.bucket
        call = CheckedCall(self, start, sink)
        if not in_backward(bucket):  # a join() dummy call, whose bucket is made for it
            return call
        # Those of a backward pass that failed are let go of.
        self._step = [*(other for other in self._step if other.step == start.step), call]
        if slot.is_last:
            self._ask_at_the_end()
        return call

    def _ask_at_the_end(self) -> None:
        # DDP's own callback, which waits for the results and reads them, is queued after this
        # hook's: to come after that one, a callback has to be queued by a callback.
        queue = queue_callback
        calls, self._step = self._step, []

        def compare() -> None:
            for call in calls:
                call.look_again()

        if queue is not None:
            queue(lambda: queue(compare))


class CheckedCall(Look):
    """One call, whose gradients are looked at when it is made, and its result when that is there.

    One without a result is let go of at the end of its step.
    """

    def __init__(self, checks: DebugChecks, start: CallStart, sink: Tracer) -> None:
        self._checks = checks
        self._slot = start.slot
        self.step = start.step
        self._sink = sink
        self._lengths = lengths_of(start.slot.parameters)
        self._parameter = start.bucket.parameters()[0]
        self._gradients = finite_parts(start.bucket.buffer().detach(), self._lengths)
        self._result: torch.Tensor | None = None
        self._digest: torch.Tensor | None = None
        self._tell(gradients=self._gradients)

    def join(self, future: Future) -> Future:
        """Return a future of the same result, which is looked at."""
        return future.then(self._arrived)

    def _arrived(self, future: Future) -> Any:
        value = future.value()
        try:
            if isinstance(value, torch.Tensor):
                self._look_at_result(value)
        except Exception:  # what DDP waits for comes in any case
            self._checks.fail(self._slot)
        return value

    def _look_at_result(self, value: torch.Tensor) -> None:
        flat, gradients = value.detach().flatten(), self._gradients
        self._digest = digest(flat)
        self._result = value
        if len(flat) == self._slot.numel:
            keep_for_current_stream([flat, gradients])
            self._tell(gradients=gradients, result=finite_parts(flat, self._lengths))

    def look_again(self) -> None:
        """Check that the result is what it was, and let go of it; raises nothing."""
        result, self._result = self._result, None
        if result is None or self._digest is None:
            return
        try:
            if self._is_gradient(result):
                return  # which others may change: a callback that clips at the end of backward
            flat = result.detach().flatten()
            keep_for_current_stream([flat, self._digest])
            self._tell(changed=(digest(flat) != self._digest).any())
        except Exception:
            self._checks.fail(self._slot)

    def _is_gradient(self, result: torch.Tensor) -> bool:
        """Return whether the gradients are views of the result (``gradient_as_bucket_view``)."""
        gradient = self._parameter.grad
        return gradient is not None and _storage(gradient) == _storage(result)

    def _tell(self, **found: torch.Tensor) -> None:
        DebugResult(slot=self._slot, step=self.step).push(self._sink, **found)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
