"""One probed call: the reference is averaged beside the hook, and both are compared when there.

    bucket --clone--> reference --all-reduce on ReferenceGroup--> reference's future --+
        |---sample--> 4096 values, checksum --all-gather------> all ranks' samples ----+
        +--> hook -------------------------------------------> the hook's future ------+
                                                                                       |
    Outcome, then the held call --> ring    <--- compare, on the thread of the last ---+
    DDP             <--- the very same result or exception

The probe stands in for the tracer as the call's recorder and holds the call back, so that the
numbers are in the ring before it.  Beyond a copy of the bucket it needs a block's memory only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from ..capture.calls import BucketCall, Recorder
from ..capture.layout import BucketSlot, GradBucketLike
from ..records import Scope
from .compare import (
    digest,
    finite_parts,
    first_overflow,
    lengths_of,
    measure,
    norm,
)

__all__ = ["Digests", "Outcome", "Probe", "ReferenceGroup", "Sink", "residual_of"]

Future = Any  # torch.futures.Future or torch._C.Future

_SAMPLES = 4096


class ReferenceGroup:
    """The ranks of a model on connections of hooktrace's own, with their own worker threads.

    It is not registered with torch.distributed, so nothing else meets it.  ``store``: for the
    rendezvous, with keys that only this group uses.  Blocks until all ranks are there.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        self.rank = rank
        self.size = size
        self._group: Any = dist.ProcessGroupGloo(store, rank, size, timeout)

    def latest(self, step: int) -> int:
        """Return the largest ``step`` of all ranks; waits for them."""
        steps = torch.tensor([step])
        options: Any = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self._group.allreduce([steps], options).wait()
        return int(steps)

    def average(self, tensor: torch.Tensor) -> Future:
        """Average in place, rounding as ``allreduce_hook`` does: divide, then add."""
        return self._group.allreduce([tensor.div_(self.size)]).get_future()

    def gather(self, tensor: torch.Tensor, rows: list[torch.Tensor]) -> Future:
        """Write every rank's ``tensor`` to ``rows``."""
        return self._group.allgather([rows], [tensor]).get_future()


@dataclass(slots=True)
class Outcome:
    """What a probe found, as tensors; ``findings`` makes records of it in the drain.

    ``sums``: of ``measure``, shape (parameters, 6).  ``finite``: whether each parameter's own
    gradient was, on this rank.  ``samples``: (ranks, k), of all ranks' own gradients.
    ``rank``: this one's place in the group, whose ``ranks`` these are in the job (none: the same).
    ``local``: whether results differ between ranks by design.  ``scope``: as in ``ErrorRecord``.
    ``result_sample``: (k,), of the result at the same places.  ``overflow``: (parameter, value of
    the reference) at the first element that only the result has as NaN or inf.  ``before``:
    the step probed before, and ``checksums`` its results' on each rank, (ranks, 2).  ``ready``:
    host ns at which the hook was called; ``arrivals``: that time on each rank in rank 0's clock and
    its uncertainty, -1 where that is unknown, (ranks, 2).  Without ``sums`` there was nothing to
    compare.
    """

    slot: BucketSlot
    step: int
    rank: int
    local: bool
    scope: Scope = "global"
    ranks: tuple[int, ...] = ()
    ready: int = 0
    time_ns: int = 0
    sums: torch.Tensor | None = None
    finite: torch.Tensor | None = None
    samples: torch.Tensor | None = None
    result_sample: torch.Tensor | None = None
    overflow: tuple[int, float] | None = None
    before: Digests | None = None
    checksums: torch.Tensor | None = None
    arrivals: torch.Tensor | None = None
    residual_l2: float | None = None

    def named(self, place: int) -> int:
        """Return the rank in the job of a place in the group."""
        return self.ranks[place] if self.ranks else place


@dataclass(slots=True)
class Digests:
    """Checksums of a step's probed results: ``sums`` of each bucket's, int64 of shape (2,)."""

    step: int
    sums: dict[int, torch.Tensor]

    def joint(self) -> torch.Tensor:
        """Return one checksum of all buckets, int64 of shape (2,)."""
        total = torch.zeros(2, dtype=torch.int64)
        for index, sums in sorted(self.sums.items()):
            total += sums * (2 * index + 1)
        return total


class Sink(Recorder, Protocol):
    """What a probe needs of a tracer."""

    def push_outcome(self, outcome: Outcome) -> None:
        """Take an outcome; the call that it belongs to is pushed next."""

    def clock_offset(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""


class Probe:
    """A probed call in the making; ``Recorder`` of its call."""

    holds = True

    def __init__(
        self,
        bucket: GradBucketLike,
        outcome: Outcome,
        group: ReferenceGroup,
        sink: Sink,
        *,
        state: Any,
        digests: Digests,
        stop: Callable[[BucketSlot, str], None],
    ) -> None:
        self.clock = sink.clock
        self.event_pool = sink.event_pool
        self._sink = sink
        self._stop = stop
        self._call: BucketCall | None = None
        buffer = bucket.buffer()
        self._lengths = lengths_of(outcome.slot.parameters)
        self._outcome = outcome
        outcome.finite = finite_parts(buffer, self._lengths)
        self._stride = max(1, buffer.numel() // _SAMPLES)
        self._digests = digests
        self._state = state
        before = torch.zeros(2, dtype=torch.int64)
        if outcome.before is not None:
            before = outcome.before.joint()
        offset, uncertainty = sink.clock_offset(outcome.ready) or (0, -1)
        numbers = torch.cat([before, torch.tensor([outcome.ready + offset, uncertainty])])
        # Integers and floats travel together, as bits.
        message = torch.cat([numbers.view(torch.int32), self._sampled(buffer).view(torch.int32)])
        self._messages = [torch.empty_like(message) for _ in range(group.size)]
        self._reference = buffer.clone()
        self._lock = threading.Lock()
        self._awaited = 3
        self._result: Future = None
        self._joined: torch.futures.Future[Any] = torch.futures.Future()
        # Issued before the hook's own, on the thread that runs backward: in one order everywhere.
        self._futures = (group.average(self._reference), group.gather(message, self._messages))

    def push(self, call: BucketCall) -> None:
        """Hold the ended call until the comparison is made."""
        self._call = call

    def abandon(self) -> None:
        """Let go of the call of a hook that raised; its record is pushed without numbers."""
        self._release()

    def join(self, future: Future) -> Future:
        """Return the future for DDP: the hook's own result, once it was compared."""
        self._result = future
        passed_on = self._joined.then(_unwrap)
        for awaited in (future, *self._futures):
            awaited.add_done_callback(self._arrived)
        return passed_on

    def _arrived(self, _: Future) -> None:
        with self._lock:
            self._awaited -= 1
            if self._awaited:
                return
        try:
            value = self._result.value()
        except Exception as error:
            self._release()
            self._joined.set_exception(error)
            return
        # Whatever happens to the comparison, Ctrl-C included, DDP waits for its result.
        try:
            self._try_to_compare(value)
        finally:
            self._joined.set_result(value)

    def _try_to_compare(self, value: torch.Tensor) -> None:
        try:
            self._compare(value)
        except Exception as error:  # the probe's own trouble must not become training's
            self._outcome.sums = None
            self._stop(self._outcome.slot, f"{type(error).__name__}: {error}")
        finally:
            self._release()

    def _compare(self, value: torch.Tensor) -> None:
        for future in self._futures:
            future.value()  # raises what went wrong on the wire
        outcome, result = self._outcome, value.detach().flatten()
        outcome.time_ns = self.clock()
        outcome.sums = measure(result, self._reference, self._lengths)
        messages = torch.stack(self._messages)
        outcome.samples = messages[:, 8:].contiguous().view(torch.float32)
        outcome.checksums = messages[:, :4].contiguous().view(torch.int64)
        outcome.arrivals = messages[:, 4:8].contiguous().view(torch.int64)
        self._digests.sums[outcome.slot.index] = digest(result)
        outcome.result_sample = self._sampled(result)
        outcome.residual_l2 = residual_of(self._state, outcome.slot.index)
        outcome.overflow = first_overflow(result, self._reference, outcome.sums, self._lengths)

    def _sampled(self, flat: torch.Tensor) -> torch.Tensor:
        # A copy in any case: the hook is about to change the bucket, and DDP the result.
        return flat.detach()[:: self._stride][:_SAMPLES].clone().float()

    def _release(self) -> None:
        self._sink.push_outcome(self._outcome)
        call = self._call
        if call is not None:
            self._sink.push(call)
            if call.slot.in_flight is call:
                call.slot.in_flight = None
        # The call keeps its recorder, and waits for the drain: what is large must not.
        del self._reference, self._messages, self._futures, self._result


def residual_of(state: Any, bucket: int) -> float | None:
    """Return the norm of what error feedback keeps of a bucket, if the state says it as PowerSGD's.

    ``None`` where it keeps nothing.
    """
    kept = getattr(state, "error_dict", None)
    found = kept.get(bucket) if isinstance(kept, dict) else None
    return norm(found) if isinstance(found, torch.Tensor) else None


def _unwrap(future: Future) -> Any:
    return future.value()
