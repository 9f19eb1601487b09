"""One probed call: the reference is averaged beside the hook, and both are compared when there.

    bucket --clone--> reference --all-reduce on PrivateGroup--> reference's future --+
        |---sample--> 4096 values, checksum --all-gather----> all ranks' samples ----+
        +--> hook -----------------------------------------> the hook's future ------+
                                                                                     |
    ProbeResult --> ring, before its call      <--- compare, on the thread of the last
    DDP               <--- the very same result or exception

Beyond a copy of the bucket, of 32 bits an element or more, it needs a block's memory only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from ..ranks.private_group import PrivateGroup
from .compare import digest, finite_parts, first_overflow, lengths_of, measure, norm
from .probe_result import ProbeResult, StepChecksums
from .step_sampler import CallStart, Future, Look, Sink

_SAMPLES = 4096

_NUMBERS = 12
"""Words of 32 bits in front of the samples: checksum (2 x 64 bits), arrival and its uncertainty,
step and bucket."""


class Probe(Look):
    """A probed call in the making.

    ``checksums``: of the step, to which this bucket's is added.  ``ended``: told how it ended, why
    it failed or ``None``.
    """

    def __init__(
        self,
        start: CallStart,
        probed: ProbeResult,
        group: PrivateGroup,
        sink: Sink,
        *,
        checksums: StepChecksums,
        ended: Callable[[str | None], None],
    ) -> None:
        self.clock = sink.clock
        self._sink = sink
        self._ended = ended
        buffer = start.bucket.buffer()
        self._lengths = lengths_of(probed.slot.parameters)
        self._probed = probed
        probed.finite = finite_parts(buffer, self._lengths)
        self._stride = max(1, buffer.numel() // _SAMPLES)
        self._checksums = checksums
        self._state = start.state
        before = torch.zeros(2, dtype=torch.int64)
        if probed.before is not None:
            before = probed.before.joint()
        offset, uncertainty = sink.clock_offset(probed.ready) or (0, -1)
        about = [probed.ready + offset, uncertainty, probed.step, probed.slot.index]
        numbers = torch.cat([before, torch.tensor(about)])
        # Integers and floats travel together, as bits.
        message = torch.cat([numbers.view(torch.int32), self._sampled(buffer).view(torch.int32)])
        self._messages = [torch.empty_like(message) for _ in range(group.size)]
        # Wider than 16 bits: an average that is rounded itself cannot tell what rounding costs.
        wide = torch.promote_types(buffer.dtype, torch.float32)
        self._reference = buffer.to(wide, copy=True)
        self._lock = threading.Lock()
        self._awaited = 3
        self._result: Future = None
        self._joined: torch.futures.Future[Any] = torch.futures.Future()
        # Issued before the hook's own, on the thread that runs backward: in one order everywhere.
        self._futures = (group.average(self._reference), group.gather(message, self._messages))

    def abandon(self) -> None:
        """Let go of the call of a hook that raised: there are no numbers."""
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
        joined = self._joined
        try:
            value = self._result.value()
        except Exception as error:
            self._release()
            # Its traceback has this frame, which has the future that is to have the error.
            joined.set_exception(error.with_traceback(None))
            return
        # Whatever happens to the comparison, Ctrl-C included, DDP waits for its result.
        try:
            self._try_to_compare(value)
        finally:
            joined.set_result(value)

    def _try_to_compare(self, value: torch.Tensor) -> None:
        why = None
        try:
            self._compare(value)
        except Exception as error:  # the probe's own trouble must not become training's
            self._probed.sums = None
            why = f"{type(error).__name__}: {error}"
            # A future that has the error would hold this frame, and what the probe has.
            error.__traceback__ = None
        finally:
            self._release()
        self._ended(why)

    def _compare(self, value: torch.Tensor) -> None:
        for future in self._futures:
            future.value()  # raises what went wrong on the wire
        probed, result = self._probed, value.detach().flatten()
        probed.time_ns = self.clock()
        probed.sums = measure(result, self._reference, self._lengths)
        numbers, samples = zip(*((m[:_NUMBERS], m[_NUMBERS:]) for m in self._messages), strict=True)
        probed.samples = torch.stack(samples).view(torch.float32)
        probed.checksums, probed.arrivals, probed.places = (
            torch.stack(numbers).view(torch.int64).split(2, dim=1)
        )
        self._checksums.sums[probed.slot.index] = digest(result)
        probed.result_sample = self._sampled(result)
        probed.residual_l2 = residual_of(self._state, probed.slot.index)
        probed.overflow = first_overflow(result, self._reference, probed.sums, self._lengths)

    def _sampled(self, flat: torch.Tensor) -> torch.Tensor:
        # A copy in any case: the hook is about to change the bucket, and DDP the result.
        return flat.detach()[:: self._stride][:_SAMPLES].clone().float()

    def _release(self) -> None:
        self._sink.push(self._probed)
        # The futures keep the probe: what is large must not wait for them.
        del self._reference, self._messages, self._futures, self._result, self._probed
        del self._joined, self._state


def residual_of(state: Any, bucket: int) -> float | None:
    """Return the norm of what error feedback keeps of a bucket, if the state says it as PowerSGD's.

    ``None`` where it keeps nothing.
    """
    kept = getattr(state, "error_dict", None)
    found = kept.get(bucket) if isinstance(kept, dict) else None
    return norm(found) if isinstance(found, torch.Tensor) else None


def _unwrap(future: Future) -> Any:
    return future.value()
