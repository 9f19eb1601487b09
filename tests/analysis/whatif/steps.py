"""Steps for tests: few gradients, all-reduces of given sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hooktrace.analysis.whatif.work import (
    BucketWork,
    Compute,
    Parameter,
    RoundWork,
    StepWork,
)


def work(
    ready: Sequence[float],
    buckets: Sequence[BucketWork],
    *,
    end: float | None = None,
    rest: float = 0,
    ranks: int = 2,
    jitter: float = 0,
    serial: bool = False,
) -> StepWork:
    """Return a step in ns; backward ends with the last gradient unless ``end`` says when."""
    parameters = tuple(Parameter(f"p{i}", (1,), "float32", 4) for i in range(len(ready)))
    if end is None:
        end = max(ready, default=0)
    compute = Compute(parameters, np.array(ready, np.float64), end, rest, jitter)
    return StepWork(compute, tuple(buckets), ranks, serial)


def bucket(last: int, *sizes: float, before: float = 0, after: float = 0) -> BucketWork:
    """Return a bucket of all-reduces; ``before`` each, ``after`` the last."""
    return BucketWork(last, 0, tuple(RoundWork(before, "all_reduce", s) for s in sizes), after)
