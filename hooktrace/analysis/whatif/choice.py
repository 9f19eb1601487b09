"""What is asked, and what is answered: one configuration of a run, and its predicted step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .work import Floats, Network, SimulatedStep, StepWork


@dataclass(frozen=True, slots=True)
class Choice:
    """A run that was not made; what is ``None`` is as in the run that was.

    ``hook``: a label as in ``Calibration.costs``: a catalogue name, or one with its options, such
    as "powersgd-rank4".  ``bucket_cap_mb``: as DDP takes it, in MiB.
    ``per_host``: ranks of a host.  ``has_own_latency``: ``network`` was named without a latency, so
    its one is the run's.
    """

    hook: str | None = None
    bucket_cap_mb: float | None = None
    ranks: int | None = None
    network: Network | None = None
    per_host: int | None = None
    has_own_latency: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """The step of a choice, times in ms with a 95 % interval; nothing of it was measured.

    ``wire_bytes``: payload of one rank and step.  ``error``: relative l2 of the hook's local error
    over the whole model, 0 where the hook loses nothing, ``None`` where nobody knows.  ``doubts``:
    sentences about this prediction.  ``work``: what was simulated; ``buckets``: of each of its
    buckets the rows of ``work.compute.parameters``, in the bucket's order.  ``draws_ms``: the step
    time in each draw of the bootstrap, (draws,); draw i of all predictions of one call is of one
    and the same resampled run, so that differences of two predictions have an interval narrower
    than their own ones.
    """

    choice: Choice
    step_ms: float
    low_ms: float
    high_ms: float
    exposed_ms: float
    wire_bytes: float
    error: float | None
    lossy: bool
    simulated: SimulatedStep
    doubts: tuple[str, ...] = ()
    work: StepWork | None = None
    buckets: tuple[tuple[int, ...], ...] = ()
    draws_ms: Floats = field(default_factory=lambda: np.zeros(0))
