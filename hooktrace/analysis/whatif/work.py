"""One step as it is to be simulated: what the training thread computes, what each bucket takes.

Sizes are bytes, times ns as floats.  All ranks do the same work; ``Compute.jitter`` says by how
much their speeds differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter as DDP's bucketing and the hooks see it: its gradient's dtype and size."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Compute:
    """The training thread's own work in one step, as if no hook took any of its time.

    ``parameters``: in the order in which their gradients become ready.  ``ready_ns``: when each
    does, (parameters,), ascending, from the moment at which the first is (0).  ``end_ns``: when the
    backward pass would end then.  ``rest_ns``: from there, with all communication done, to the
    first gradient of the next step: optimizer, data, forward.  ``jitter``: standard deviation, over
    ranks and steps, of how much longer a step's computing takes than on average, as a share.
    """

    parameters: tuple[Parameter, ...]
    ready_ns: Floats
    end_ns: float
    rest_ns: float
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class RoundWork:
    """One collective of a bucket.

    ``before_ns``: work between the round before (or the hook's call) and this one's start.
    ``wire_bytes``: one rank's payload.  ``adding_ns``: what its elements take to be added beyond
    what float32 ones do, each of them once.
    """

    before_ns: float
    collective: str
    wire_bytes: float
    adding_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class BucketWork:
    """One bucket: its last gradient, as a row of ``Compute.parameters``, and the hook's work on it.

    ``after_ns``: after the last round.
    """

    last_parameter: int
    gradient_bytes: int
    rounds: tuple[RoundWork, ...]
    after_ns: float


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a rank runs.

    ``workers``: collectives that the backend executes at once, first in first out; each also runs
    the callback of its own.  ``cores``: that a rank has to itself.  ``wire_cores``: of one core,
    what a transfer at full rate takes (copies, sums), 0 where nobody knows.  ``call_ns``: what a
    call of the hook costs the training thread whatever the bucket.  ``turn_ns``: what the threads
    of a collective wait for cores, where others want more than there are.
    """

    workers: int = 2
    cores: float = 1.0
    wire_cores: float = 0.0
    call_ns: float = 0.0
    turn_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Network:
    """What joins the ranks.

    ``latency_ns``: of one message.  ``bandwidth``: bytes a second that a host sends and, unless
    ``shared``, receives at the same time.  ``per_host``: ranks of a host, which share its link.
    ``overhead_ns``: what each collective takes of a core beside, on each rank and however many
    there are: threads that wake each other up.
    """

    latency_ns: float
    bandwidth: float
    shared: bool = False
    per_host: int = 1
    overhead_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class StepWork:
    """Everything of one step.

    ``serial``: one bucket's rounds and callbacks after another's (hooks of several rounds).
    """

    compute: Compute
    buckets: tuple[BucketWork, ...]
    ranks: int
    serial: bool = False


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """What came of it, on the rank that is in the middle; ns from the step's first gradient.

    ``step_ns``: from one step's first gradient to the next one's.  ``exposed_ns``: from the end of
    the backward pass' own work to the last result, as in ``StepRecord``.  ``backward_ns``: when
    that work ended, hooks' work on the training thread included.  Of each bucket (buckets,):
    ``ready_ns`` the hook is called, ``launched_ns`` it returned, ``done_ns``; of each round
    (``round_bucket``, in order): issued, on a worker, the last rank has begun, arrived.
    """

    step_ns: float
    exposed_ns: float
    backward_ns: float
    ready_ns: Floats
    launched_ns: Floats
    done_ns: Floats
    round_bucket: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    issued_ns: Floats = field(default_factory=lambda: np.zeros(0))
    started_ns: Floats = field(default_factory=lambda: np.zeros(0))
    met_ns: Floats = field(default_factory=lambda: np.zeros(0))
    arrived_ns: Floats = field(default_factory=lambda: np.zeros(0))
