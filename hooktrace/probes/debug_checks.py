"""Debug mode: every bucket of every step is looked at on its own rank.

    hook is called    are the gradients finite?
    hook's future     is the result finite?  its checksum
    backward is over  has the checksum changed?
    drain             DebugResult, once it has come to the host --> anomalies

Nothing is sent, and nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..records import AnomalyRecord
from ..staging.backward import queue_callback
from ..staging.devices import keep_for_current_stream
from ..staging.slots import BucketSlot, in_backward
from .compare import digest, finite_parts, has_parts, lengths_of
from .probe_result import Found
from .step_sampler import CallStart, Future, Look, Part

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler
    from ..tracing.tracer import Tracer

logger = logging.getLogger("hooktrace")

_CHANGED = (
    "the result changed between the completion of the hook's future and the end of the backward "
    "pass, when DDP may have read it already"
)

_HIDDEN = "and its result has none, so that the loss scaler does not leave the step out"


class DebugChecks(Part):
    """Looks at one model's buckets in every step; on the thread of its backward pass."""

    def __init__(self) -> None:
        self.next_step = 0
        self._step: list[CheckedCall] = []
        self._failed = False

    def enter(self, start: CallStart, sink: Tracer) -> bool:
        """Look at a bucket before its hook does; raises nothing."""
        slot = start.slot
        if self._failed or not has_parts(slot):
            return False
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


@dataclass(kw_only=True)
class DebugResult(Found):
    """What one look at a call found.

    ``gradients`` and ``result``: which parameters' were finite, bool of shape (parameters,).
    ``changed``: whether the result did, bool.  One of ``changed`` and ``gradients`` is there.
    """

    gradients: torch.Tensor | None = None
    result: torch.Tensor | None = None
    changed: torch.Tensor | None = None

    def arrive(self, into: Assembler) -> None:
        """Become anomalies; those that a loss scaler does not see are none of its own."""
        anomalies = list(self.anomalies())
        self.scaled = self.scaled and not self.is_hidden
        into.add_found(self, anomalies)

    @property
    def is_hidden(self) -> bool:
        """Whether a loss scaler looks for NaN and inf that the hook has hidden from it."""
        if not self.scaled or self.gradients is None or self.result is None:
            return False
        return bool(self.result.all()) and not bool(self.gradients.all())

    def anomalies(self) -> Iterator[AnomalyRecord]:
        """Yield what was wrong."""
        if self.changed is not None:
            if self.changed:
                yield self.anomaly("changed_after_completion", _CHANGED)
            return
        name = self._first_not_finite(self.gradients)
        if name is not None and (self.result is None or self.is_hidden):
            hidden = f", {_HIDDEN}" if self.is_hidden else ""
            what = f"the gradient of {name} had NaN or inf before the hook{hidden}"
            yield self.anomaly("nonfinite_gradient", what, stage="ready", parameter=name)
        elif self.result is not None and name is None:
            name = self._first_not_finite(self.result)
            if name is not None:
                what = f"the result of {name} has NaN or inf, and this rank's gradients had none"
                yield self.anomaly("nonfinite_average", what, parameter=name)

    def _first_not_finite(self, finite: torch.Tensor | None) -> str | None:
        flags = [] if finite is None else finite.tolist()
        return None if all(flags) else self.slot.parameters[flags.index(False)][0]
