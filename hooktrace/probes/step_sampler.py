"""What is looked at on some steps of a model only, behind one comparison for each hook call.

    TracedHook --step >= model.sample_step--> StepSampler.enter
                                                |-- model.py or local.py    how lossy is it?
                                                |-- wire.py                 what is sent?
                                                +-- debug_checks.py         on every step
    call    <--- its recorder: the tracer, or the probe that holds the call back
    future  <--- SampledCall.join: the very same result, a little later

A part that fails ends itself, and says so; training goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..capture.calls import BucketCall, Recorder
from ..records import AnomalyRecord
from .call_start import CallStart
from .debug_checks import CheckedCall, DebugChecks, DebugSink
from .local import LocalProbes
from .model import ModelProbes
from .probe import Probe, ProbeSink
from .probe_result import ProbeResult
from .wire import WireSample, WireSampler, WireSink

__all__ = ["SampledCall", "StepSampler"]

Future = Any  # torch.futures.Future or torch._C.Future


class Sink(ProbeSink, DebugSink, WireSink, Protocol):
    """What looking at calls needs of a tracer."""

    @property
    def push(self) -> Callable[[BucketCall | ProbeResult | WireSample | AnomalyRecord], None]:
        """Takes what was found, and ended calls; never blocks."""


class StepSampler:
    """Everything that is sampled of one model, each part where it is wanted."""

    def __init__(
        self,
        *,
        comparison: ModelProbes | LocalProbes | None = None,
        wire: WireSampler | None = None,
        debug: DebugChecks | None = None,
    ) -> None:
        self._comparison = comparison
        self._wire = wire
        self._debug = debug
        self.next_step = self._next_step()

    def enter(self, start: CallStart, sink: Sink) -> SampledCall | None:
        """Look at a bucket of a step at or after ``next_step``.

        Returns the call's part in it, ``None`` where nothing is to be done for this call.
        """
        step = start.step
        probe = checked = None
        if self._wire is not None and step >= self._wire.next_step:
            self._wire.enter(start.slot, step, sink)
        if self._comparison is not None and step >= self._comparison.next_step:
            probe = self._comparison.enter(start, sink)
        if self._debug is not None:
            checked = self._debug.enter(start, sink)
        self.next_step = self._next_step()
        return SampledCall(probe, checked) if probe is not None or checked is not None else None

    def leave(self) -> None:
        """Let the other ranks know that this one samples no more."""
        if self._comparison is not None:
            self._comparison.leave()

    def _next_step(self) -> int:
        parts = (self._comparison, self._wire, self._debug)
        return min(part.next_step for part in parts if part is not None)


class SampledCall:
    """A call that is looked at: what it reports to, and what DDP gets of it."""

    __slots__ = ("_checked", "_probe")

    def __init__(self, probe: Probe | None, checked: CheckedCall | None) -> None:
        self._probe = probe
        self._checked = checked

    def recorder(self, otherwise: Recorder) -> Recorder:
        """Return what the call reports to."""
        return otherwise if self._probe is None else self._probe

    def abandon(self) -> None:
        """Let go of a call whose hook raised."""
        if self._probe is not None:
            self._probe.abandon()

    def join(self, future: Future) -> Future:
        """Return the future for DDP: the hook's own result, once it was looked at."""
        if self._probe is not None:
            future = self._probe.join(future)
        return future if self._checked is None else self._checked.join(future)
