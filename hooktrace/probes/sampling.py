"""What is looked at on some steps of a model only, behind one comparison for each hook call.

    TracedHook --step >= model.sample_step--> Sampling.enter
                                                |-- comparison  model.py, local.py: how lossy?
                                                |-- wire.py     what does an opaque hook send?
                                                +-- watch.py    debug mode: every step
    call    <--- its recorder: the tracer, or the probe that holds the call back
    future  <--- Sampled.join: the very same result, a little later

A part that fails ends itself, and says so; training goes on.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..capture.calls import Recorder
from ..records import AnomalyRecord
from .local import LocalProbes
from .model import ModelProbes
from .probe import Outcome, Probe
from .schedule import Occasion
from .watch import Watch, Watched
from .wire import WireSample, WireSampler

__all__ = ["Sampled", "Sampling"]

Future = Any  # torch.futures.Future or torch._C.Future


class Sink(Recorder, Protocol):
    """What sampling needs of a tracer."""

    def push_outcome(self, outcome: Outcome) -> None:
        """Take an outcome; the call that it belongs to is pushed next."""

    def clock_offset(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""

    def push_sample(self, sample: WireSample) -> None:
        """Take a sample; the calls of its step are pushed later."""

    def note(self, anomaly: AnomalyRecord) -> None:
        """Take an anomaly."""

    def wake(self) -> None:
        """Let the drain work now."""


class Sampling:
    """Everything that is sampled of one model, each part where it is wanted."""

    def __init__(
        self,
        *,
        comparison: ModelProbes | LocalProbes | None = None,
        wire: WireSampler | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._comparison = comparison
        self._wire = wire
        self._watch = watch
        self.next_step = self._next_step()

    def enter(self, occasion: Occasion, sink: Sink) -> Sampled | None:
        """Look at a bucket of a step at or after ``next_step``; what is there is to be joined."""
        step = occasion.step
        probe = watched = None
        if self._wire is not None and step >= self._wire.next_step:
            self._wire.enter(occasion.slot, step, sink)
        if self._comparison is not None and step >= self._comparison.next_step:
            probe = self._comparison.enter(occasion, sink)
        if self._watch is not None:
            watched = self._watch.enter(occasion, sink)
        self.next_step = self._next_step()
        return Sampled(probe, watched) if probe is not None or watched is not None else None

    def leave(self) -> None:
        """Let the other ranks know that this one samples no more."""
        if self._comparison is not None:
            self._comparison.leave()

    def _next_step(self) -> int:
        parts = (self._comparison, self._wire, self._watch)
        return min(part.next_step for part in parts if part is not None)


class Sampled:
    """A call that is looked at: what it reports to, and what DDP gets of it."""

    __slots__ = ("_probe", "_watched")

    def __init__(self, probe: Probe | None, watched: Watched | None) -> None:
        self._probe = probe
        self._watched = watched

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
        return future if self._watched is None else self._watched.join(future)
