"""A prediction with all that its records need: two buckets, of two rounds and of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hooktrace.analysis.whatif.choice import Prediction
from hooktrace.analysis.whatif.work import (
    BucketWork,
    Compute,
    Parameter,
    RoundWork,
    SimulatedStep,
    StepWork,
)
from hooktrace.records import RunInfo

from .answers import predicted

MS = 1e6
RUN = RunInfo(
    run_id="a-run", rank=3, local_rank=3, world_size=4, host="h", pid=9, torch_version="2.13.0",
    backend="gloo", host_anchor_ns=5, wall_anchor_ns=1_795_000_000_000_000_000,
)  # fmt: skip


def ms(*times: float) -> np.ndarray:
    """Return times in ns."""
    return np.array(times) * MS


def two_buckets() -> Prediction:
    """Return a serial hook's step of 100 ms on 8 ranks."""
    parameters = tuple(
        Parameter(f"layers.{i}.weight", (500, 500), "float32", 10**6) for i in (1, 0)
    )
    compute = Compute(parameters, ms(0, 40), 40 * MS, 50 * MS)
    rounds = (RoundWork(2 * MS, "all_reduce", 4000.0), RoundWork(1 * MS, "all_reduce", 6000.0))
    buckets = (BucketWork(0, 10**6, rounds, 3 * MS), BucketWork(1, 10**6, rounds[:1], 3 * MS))
    simulated = SimulatedStep(
        100 * MS, 8 * MS, 42 * MS, ready_ns=ms(0, 40), launched_ns=ms(2, 41), done_ns=ms(50, 60),
        round_bucket=np.array([0, 0, 1]), issued_ns=ms(2, 31, 52), started_ns=ms(2, 32, 52),
        met_ns=ms(2, 32, 52), arrived_ns=ms(30, 47, 57),
    )  # fmt: skip
    work = StepWork(compute, buckets, 8, serial=True)
    one = predicted(100.0, "powersgd", error=0.5)
    return replace(one, simulated=simulated, work=work, buckets=((0,), (1,)))
