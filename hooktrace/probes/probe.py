"""One checked call: the reference is averaged beside the hook, and both are compared when there.

    bucket --clone--> reference --all-reduce on PrivateGroup--> reference's future --+
        |---sample--> 4096 values, checksum --all-gather----> all ranks' samples ----+
        +--> hook -----------------------------------------> the hook's future ------+
                                                                                     |
    ProbeResult --> ring, before its call      <--- compare, on the thread of the last
    DDP               <--- the very same result or exception

Beyond a copy of the bucket, of 32 bits an element or more, it needs a block's memory only.

On a device all of this is only enqueued, and nothing waits: the numbers are made there, and the
drain reads them when they have come to the host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..staging.devices import keep_for_current_stream
from ..staging.driver import new_future
from .compare import compared, digest, finite_parts, lengths_of, wide_copy
from .probe_result import ProbeResult, StepChecksums
from .step_sampler import CallStart, Future, Look

if TYPE_CHECKING:
    from ..ranks.private_group import PrivateGroup
    from ..tracing.tracer import Tracer
    from .device_group import DeviceGroup

_SAMPLES = 4096

_SENT = 2
"""Collectives of a probe."""

_NUMBERS = 10
"""Words of 32 bits in front of the samples: checksum (2 x 64 bits), of what it is, arrival and its
uncertainty."""


class Probe(Look):
    """A checked call in the making.

    ``checksums``: of the step, to which this bucket's is added.  ``ended``: told how it ended, why
    it failed or ``None``.
    """

    def __init__(
        self,
        start: CallStart,
        checked: ProbeResult,
        sink: Tracer,
        checksums: StepChecksums,
        ended: Callable[[str | None], None],
    ) -> None:
        self._sink = sink
        self._ended = ended
        buffer = start.bucket.buffer()
        self._lengths = lengths_of(checked.slot.parameters)
        self._checked = checked
        self._finite = finite_parts(buffer, self._lengths)
        self._stride = max(1, buffer.numel() // _SAMPLES)
        self._checksums = checksums
        self._state = start.state
        earlier = checked.before or StepChecksums(-1, {})
        before = earlier.joint(buffer.device)
        offset, uncertainty = sink.clock_offset(checked.ready) or (0, -1)
        # A number reaches a device without waiting for it by filling a tensor, not by a copy.
        about = (earlier.identity, checked.ready + offset, uncertainty)
        numbers = torch.cat([before, *(before.new_full((1,), number) for number in about)])
        # Integers and floats travel together, as bits.
        message = torch.cat([numbers.view(torch.int32), self._sampled(buffer).view(torch.int32)])
        self._messages = message.new_empty((len(checked.ranks), len(message)))
        self._reference = wide_copy(buffer)
        self._lock = threading.Lock()
        self._has_result = self._is_dropped = self._is_over = False
        self._has_arrived = 0
        self._result: Future = None
        self._joined = new_future(buffer)
        self._message = message
        self._futures: tuple[Future, ...] = ()

    def issuer(self) -> Callable[[PrivateGroup | DeviceGroup], None]:
        """Return what issues the reference over a group: in one order on all ranks, on any thread.

        All memory was there before: no rank is to fail there alone.  Nor where the hook has raised
        meanwhile: the others may have issued theirs.
        """
        reference, message, messages = self._reference, self._message, self._messages
        del self._message

        def issue(group: PrivateGroup | DeviceGroup) -> None:
            futures = (group.average(reference), group.gather(message, messages))
            self._futures = futures
            for awaited in futures:
                awaited.add_done_callback(self._arrived)

        return issue

    def drop(self) -> None:
        """Take note that there is no reference: DDP gets the hook's result as it is."""
        self._go_on(dropped=True)

    def abandon(self, why: str) -> None:
        """Let go of the call: there are no numbers."""
        with self._lock:
            over, self._is_over = self._is_over, True
        if not over:
            self._release()
            self._ended(why)

    def join(self, future: Future) -> Future:
        """Return the future for DDP: the hook's own result, once it was compared."""
        self._result = future
        passed_on = self._joined.then(_unwrap)
        future.add_done_callback(self._hook_is_done)
        return passed_on

    def _hook_is_done(self, future: Future) -> None:
        try:
            future.value()
            failed = False
        except Exception:  # which DDP is to have at once
            failed = True
        self._go_on(result=True, dropped=failed)

    def _arrived(self, _: Future) -> None:
        self._go_on(arrived=1)

    def _go_on(self, *, result: bool = False, arrived: int = 0, dropped: bool = False) -> None:
        """Give DDP the hook's result when that and the reference are there, or there is none."""
        with self._lock:
            self._has_result |= result
            self._has_arrived += arrived
            self._is_dropped |= dropped
            all_arrived = self._is_dropped or self._has_arrived == _SENT
            if self._is_over or not (self._has_result and all_arrived):
                return
            self._is_over = True
        joined = self._joined
        try:
            # All have completed.  What a device still has to do for it this stream waits for.
            value = self._result.wait()
        except Exception as error:
            self._release()
            # Its traceback has this frame, which has the future that is to have the error.
            joined.set_exception(error.with_traceback(None))
            error.__traceback__ = None  # nor what it got when the future's callbacks raised it
            return
        # Whatever happens to the comparison, Ctrl-C included, DDP waits for its result.
        try:
            if self._is_dropped:
                self._release()
            else:
                self._try_to_compare(value)
        finally:
            joined.set_result(value)

    def _try_to_compare(self, value: torch.Tensor) -> None:
        why = None
        try:
            self._compare(value)
        except Exception as error:  # the probe's own trouble must not become training's
            why = f"{type(error).__name__}: {error}"
            # A future that has the error would hold this frame, and what the probe has.
            error.__traceback__ = None
        finally:
            self._release()
        self._ended(why)

    def _compare(self, value: torch.Tensor) -> None:
        for future in self._futures:
            future.wait()  # raises what went wrong on the wire
        checked, result, messages = self._checked, value.detach().flatten(), self._messages
        checked.time_ns = self._sink.clock()
        residual = residual_of(self._state, checked.slot.index)
        used = [result, self._reference, messages, self._finite, residual]
        keep_for_current_stream(tensor for tensor in used if tensor is not None)
        # Flat: rows of another length cannot be read as 64 bits.
        numbers = messages[:, :_NUMBERS].flatten().view(torch.int64)
        numbers = numbers.view(len(messages), -1)
        checksums, arrivals = numbers.split((3, 2), dim=1)
        found = compared(result, self._reference, self._lengths, residual) | {
            "finite": self._finite,
            "samples": messages[:, _NUMBERS:].view(torch.float32),
            "checksums": checksums,
            "result_sample": self._sampled(result),
        }
        if result.is_cpu:  # of a device the host knows only when work for it was enqueued
            found["arrivals"] = arrivals
        self._checksums.sums[checked.slot.index] = digest(result)
        checked.send(self._sink.event_pool, found)

    def _sampled(self, flat: torch.Tensor) -> torch.Tensor:
        # A copy in any case: the hook is about to change the bucket, and DDP the result.
        return flat.detach()[:: self._stride][:_SAMPLES].clone().float()

    def _release(self) -> None:
        self._sink.push(self._checked)
        # The futures keep the probe: what is large must not wait for them.
        del self._reference, self._messages, self._futures, self._result, self._checked
        del self._joined, self._state, self._finite


def residual_of(state: Any, bucket: int) -> torch.Tensor | None:
    """Return what error feedback keeps of a bucket, if the state says it as PowerSGD's does."""
    kept = getattr(state, "error_dict", None)
    found = kept.get(bucket) if isinstance(kept, dict) else None
    return found if isinstance(found, torch.Tensor) else None


def _unwrap(future: Future) -> Any:
    return future.value()
