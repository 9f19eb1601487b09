"""Debug mode: every bucket of every step is looked at on its own rank.

    hook is called    are the gradients finite?  who keeps the bucket's memory?
    hook's future     is the result finite?  its checksum
    backward is over  has the checksum changed?
    drain             DebugResult, once it has come to the host --> anomalies

Nothing is sent, and nothing waits.  Who keeps a bucket's memory cannot be told on a device: its
backend keeps it too, for as long as the device needs it.

DDP uses the memory of a bucket again in each step.  A hook that keeps it, or a view of it, sees it
change: a residual must be a copy.  Who keeps it is told by reference counts, compared with those of
the first call, before which no hook has seen the bucket.  While a step's last callbacks end the
counts are higher for a moment, so what counts is the lowest of some steps.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from ..staging.backward import queue_callback
from ..staging.slots import BucketSlot, GradBucketLike, in_backward
from ..staging.streams import keep_for_current_stream
from .anomalies import anomaly_of
from .compare import digest, finite_parts, lengths_of
from .debug_result import DebugResult
from .step_sampler import CallStart, Future, Look, Part

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

logger = logging.getLogger("hooktrace")

_CALLS = 8
"""In as many calls one after another memory must be held to count."""


class DebugChecks(Part):
    """Looks at one model's buckets in every step; on the thread of its backward pass."""

    def __init__(self) -> None:
        self.next_step = 0
        self._memory: dict[BucketSlot, MemoryHolders] = {}
        self._step: list[CheckedCall] = []
        self._failed = False
        self._said = False

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
        call.look_at_gradients(bucket.buffer().detach())
        if not in_backward(bucket):  # a shadow, whose bucket is made for the call
            return call
        if slot.device_type == "cpu":
            self._look_at_memory(start, sink)
        elif not self._said:
            self._said = True
            logger.info(
                "debug checks of %s do not tell on a device whether a hook holds a bucket's "
                "memory; run the hook on a CPU for that",
                slot.model.name,
            )
        # Those of a backward pass that failed are let go of.
        self._step = [*(other for other in self._step if other.step == start.step), call]
        if slot.is_last:
            self._ask_at_the_end()
        return call

    def _look_at_memory(self, start: CallStart, sink: Tracer) -> None:
        slot = start.slot
        if slot not in self._memory:
            self._memory = {s: m for s, m in self._memory.items() if _together(s, slot)}
            self._memory[slot] = MemoryHolders(slot)
        holder = self._memory[slot].holder(start.bucket)
        if holder is not None:
            what = f"{holder} holds the bucket's memory from step to step, and DDP writes there"
            found = anomaly_of(slot, "holds_memory", what, step=start.step, time_ns=sink.clock())
            sink.push(found)

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
    """One call that is looked at; one without a result is let go of at the end of its step."""

    def __init__(self, checks: DebugChecks, start: CallStart, sink: Tracer) -> None:
        self._checks = checks
        self._slot = start.slot
        self.step = start.step
        self._sink = sink
        self._lengths = lengths_of(start.slot.parameters)
        self._parameter = start.bucket.parameters()[0]
        self._gradients: torch.Tensor | None = None
        self._result: torch.Tensor | None = None
        self._digest: torch.Tensor | None = None

    def look_at_gradients(self, flat: torch.Tensor) -> None:
        """Check what the hook is given."""
        if self._lengths and len(flat) == self._slot.numel:
            self._gradients = finite_parts(flat, self._lengths)
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
        if gradients is not None and len(flat) == self._slot.numel:
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


def _together(one: BucketSlot, other: BucketSlot) -> bool:
    return one.generation == other.generation and one.model is other.model


class MemoryHolders:
    """Who holds one bucket's memory: reference counts of its last calls, before each."""

    def __init__(self, slot: BucketSlot) -> None:
        self._parameters = len(slot.parameters)
        self._limits: tuple[int, int, int] | None = None
        self._found = False
        self._seen: deque[tuple[int, int, int]] = deque(maxlen=_CALLS)

    def holder(self, bucket: GradBucketLike) -> str | None:
        """Return who holds the memory since the call before, once; ``None`` if nobody does."""
        holder = None if self._found else self._holder(bucket)
        self._found = self._found or holder is not None
        return holder

    def _holder(self, bucket: GradBucketLike) -> str | None:
        counts = references(bucket.buffer())
        if self._limits is None:
            storage, tensor, python = counts
            # DDP itself adds a view for each parameter after the first call, and the tensor's
            # Python object is then kept by the tensor.
            self._limits = storage + self._parameters, tensor + self._parameters, python + 1
            return None
        self._seen.append(counts)
        if len(self._seen) < _CALLS:
            return None
        storage, tensor, python = (
            min(counts) > limit
            for counts, limit in zip(zip(*self._seen, strict=True), self._limits, strict=True)
        )
        if storage:
            return "a view (the hook's, or with gradient_as_bucket_view the training loop's)"
        if tensor:
            return "a GradBucket, or a future, that the hook keeps"
        return _container(bucket.buffer()) if python else None


def references(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Return the references to a tensor's storage, to the tensor, and to its Python object."""
    storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return storage, tensor._use_count(), sys.getrefcount(tensor)  # type: ignore[attr-defined]


def _container(tensor: torch.Tensor) -> str | None:
    """Return what a tensor's Python object is kept in, ``None`` where running code only has it."""
    for referrer in gc.get_referrers(tensor):
        if not isinstance(referrer, FrameType) and not isinstance(referrer, Iterator):
            return f"a {type(referrer).__name__}"
    return None
