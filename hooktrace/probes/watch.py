"""Debug mode: every bucket of every step is looked at on its own rank; nothing is sent.

    hook is called    are the gradients finite?  who holds the bucket's memory since before?
    hook's future     is the result finite?  its checksum
    backward is over  has the checksum changed?

DDP uses the memory of a bucket again in each step.  A hook that keeps it, or a view of it, sees it
change: a residual must be a copy.  Memory is told by reference counts against those of the bucket's
first call, when no hook had seen it; while a step's last callbacks end they are higher for a
moment, so what counts is the lowest of some steps.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol

import torch

from ..capture.calls import Recorder
from ..capture.layout import BucketSlot, GradBucketLike, anomaly_of, in_backward
from ..records import AnomalyRecord
from .compare import digest, finite_parts, lengths_of
from .findings import Finding, nonfinite_gradient
from .schedule import Occasion

__all__ = ["Watch", "Watched"]

logger = logging.getLogger("hooktrace")

Future = Any  # torch.futures.Future or torch._C.Future

_CALLS = 8
"""In as many calls one after another memory must be held to count."""


class WatchSink(Recorder, Protocol):
    """What watching needs of a tracer."""

    def note(self, anomaly: AnomalyRecord) -> None:
        """Take an anomaly."""


class Watch:
    """Looks at one model's buckets in every step; on the thread of its backward pass."""

    next_step = 0

    def __init__(self) -> None:
        self._memory: dict[BucketSlot, _Memory] = {}
        self._step: list[Watched] = []
        self._failed = False

    def enter(self, occasion: Occasion, sink: WatchSink) -> Watched | None:
        """Look at a bucket before its hook does; raises nothing."""
        slot = occasion.slot
        if self._failed or not slot.is_dense or slot.device_type != "cpu":
            return None
        if sum(lengths_of(slot.parameters)) != slot.numel:
            return None  # complex gradients, which are two real ones each
        try:
            return self._enter(occasion, sink)
        except Exception:
            self.fail(slot)
            return None

    def fail(self, slot: BucketSlot) -> None:
        """End the checks after an exception of their own, which is logged; training goes on."""
        if not self._failed:
            self._failed = True
            logger.exception("debug checks of %s end here; training goes on", slot.model.name)

    def _enter(self, occasion: Occasion, sink: WatchSink) -> Watched:
        slot, step, bucket = occasion.slot, occasion.step, occasion.bucket
        watched = Watched(self, slot, step, sink)
        watched.parameter = bucket.parameters()[0]
        if not in_backward(bucket):  # a shadow, whose bucket is made for the call
            watched.look_at_gradients(bucket.buffer().detach())
            return watched
        if slot not in self._memory:
            self._memory = {s: m for s, m in self._memory.items() if _together(s, slot)}
            self._memory[slot] = _Memory(slot)
        holder = self._memory[slot].holder(bucket)
        if holder is not None:
            watched.note(_held_by(holder))
        watched.look_at_gradients(bucket.buffer().detach())
        # Those of a backward pass that failed are let go of.
        self._step = [*(w for w in self._step if w.step == step), watched]
        if slot.is_last:
            self._ask_at_the_end()
        return watched

    def _ask_at_the_end(self) -> None:
        # DDP's own callback, which waits for the results and reads them, is queued after this
        # hook's: to come after that one, a callback has to be queued by a callback.
        engine: Any = torch.autograd.Variable._execution_engine
        watched, self._step = self._step, []

        def compare() -> None:
            for one in watched:
                one.look_again()

        engine.queue_callback(lambda: engine.queue_callback(compare))


class Watched:
    """One call that is looked at."""

    def __init__(self, watch: Watch, slot: BucketSlot, step: int, sink: WatchSink) -> None:
        self._watch = watch
        self._slot = slot
        self.step = step
        self._sink = sink
        self._finite = True
        self.parameter: torch.Tensor | None = None
        self._result: torch.Tensor | None = None
        self._digest: torch.Tensor | None = None

    def note(self, found: Finding) -> None:
        """Record an anomaly of this call."""
        self._sink.note(
            anomaly_of(
                self._slot,
                found.kind,
                step=self.step,
                stage=found.stage,
                time_ns=self._sink.clock(),
                message=found.message,
                parameter=found.parameter,
            )
        )

    def look_at_gradients(self, flat: torch.Tensor) -> None:
        """Check what the hook is given."""
        name = self._first_not_finite(flat)
        if name is not None:
            self._finite = False
            self.note(nonfinite_gradient(name))

    def join(self, future: Future) -> Future:
        """Return a future of the same result, which is looked at."""
        return future.then(self._arrived)

    def _arrived(self, future: Future) -> Any:
        value = future.value()
        try:
            if isinstance(value, torch.Tensor):
                self._look_at_result(value)
        except Exception:  # what DDP waits for comes in any case
            self._watch.fail(self._slot)
        return value

    def _look_at_result(self, value: torch.Tensor) -> None:
        flat = value.detach().flatten()
        self._digest = digest(flat)
        self._result = value
        name = self._first_not_finite(flat) if self._finite else None
        if name is not None:
            self.note(_nonfinite_average(name))

    def look_again(self) -> None:
        """Check that the result is what it was, and let go of it; raises nothing."""
        result, self._result = self._result, None
        if result is None or self._digest is None:
            return
        try:
            if self._is_gradient(result):
                return  # which others may change: a callback that clips at the end of backward
            if not torch.equal(digest(result.detach().flatten()), self._digest):
                self.note(_CHANGED)
        except Exception:
            self._watch.fail(self._slot)

    def _is_gradient(self, result: torch.Tensor) -> bool:
        """Return whether the gradients are views of the result (``gradient_as_bucket_view``)."""
        gradient = None if self.parameter is None else self.parameter.grad
        if gradient is None:
            return False
        own, other = gradient.untyped_storage(), result.untyped_storage()
        return own.data_ptr() == other.data_ptr()

    def _first_not_finite(self, flat: torch.Tensor) -> str | None:
        if len(flat) != self._slot.numel or torch.isfinite(flat).all():
            return None
        finite = finite_parts(flat, lengths_of(self._slot.parameters)).tolist()
        return self._slot.parameters[finite.index(False)][0]


_CHANGED = Finding(
    "changed_after_completion", "hook",
    "the result changed between the completion of the hook's future and the end of the backward "
    "pass, when DDP may have read it already; complete the future when the last collective has, as "
    "work.get_future().then(...) does",
)  # fmt: skip


def _held_by(holder: str) -> Finding:
    return Finding(
        "holds_memory", "hook",
        f"{holder} holds the bucket's memory from step to step, and DDP writes the next gradients "
        "to it; keep a copy: bucket.buffer().clone()",
    )  # fmt: skip


def _nonfinite_average(name: str) -> Finding:
    return Finding(
        "nonfinite_average", "hook",
        f"the result of {name} has NaN or inf, and this rank's gradients had none; the rank that "
        "reports nonfinite_gradient had it, and where none does, the hook made it: look at its "
        "casts and divisions",
        name,
    )  # fmt: skip


def _together(one: BucketSlot, other: BucketSlot) -> bool:
    return one.generation == other.generation and one.model is other.model


class _Memory:
    """Who holds one bucket's memory: reference counts of its last calls, before each."""

    def __init__(self, slot: BucketSlot) -> None:
        self._parameters = len(slot.parameters)
        self._limits: tuple[int, int, int] | None = None
        self._found = False
        self._seen: deque[tuple[int, int, int]] = deque(maxlen=_CALLS)

    def holder(self, bucket: GradBucketLike) -> str | None:
        """Return who holds the memory since the call before, once; ``None`` if nobody does."""
        if self._found:
            return None
        holder = self._holder(bucket)
        self._found = holder is not None
        return holder

    def _holder(self, bucket: GradBucketLike) -> str | None:
        counts = _references(bucket.buffer())
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


def _references(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Return the references to a tensor's storage, to the tensor, and to its Python object."""
    storage = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return storage, tensor._use_count(), sys.getrefcount(tensor)  # type: ignore[attr-defined]


def _container(tensor: torch.Tensor) -> str | None:
    """Return what a tensor's Python object is kept in, ``None`` where running code only has it."""
    for referrer in gc.get_referrers(tensor):
        if not isinstance(referrer, FrameType) and not isinstance(referrer, Iterator):
            return f"a {type(referrer).__name__}"
    return None
