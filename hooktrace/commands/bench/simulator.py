"""What-if's simulator alone: many configurations at once, and one step of very many ranks.

made-up steps --simulate_many--> seconds
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from ...analysis.whatif.simulate import simulate, simulate_many
from ...analysis.whatif.work import (
    BucketWork,
    Compute,
    Machine,
    Network,
    Parameter,
    RoundWork,
    StepWork,
)
from .table import Row

_CONFIGURATIONS, _BUCKETS = 1000, 20
_RANKS, _BUCKETS_OF_RANKS = 10_000, 25
_MACHINE = Machine(workers=2, cores=1.0, wire_cores=0.3, call_ns=2e4)


def simulator(*, quick: bool) -> Iterator[Row]:
    """Yield the rows: all-reduces, three rounds a bucket, and a job of many ranks."""
    count = 3 if quick else 9
    networks = [Network(3e4, float(one)) for one in np.geomspace(1e7, 5e10, _CONFIGURATIONS)]
    for what, rounds, jitter in (
        ("all-reduce, ranks alike", 1, 0.0),
        ("all-reduce, ranks that differ", 1, 0.02),
        ("three rounds, ranks that differ", 3, 0.02),
    ):
        work = _work(_BUCKETS, rounds, 64, jitter)
        cases = [(work, _MACHINE, network) for network in networks]
        yield Row(
            f"{_CONFIGURATIONS:,} configurations: {what}",
            _seconds(lambda cases=cases: simulate_many(cases), count),  # type: ignore[misc]
            "s",
            budget=2,
            note=f"{_BUCKETS} buckets each",
        )
    work = _work(_BUCKETS_OF_RANKS, 1, _RANKS, 0.05)
    yield Row(
        f"a step on {_RANKS:,} ranks that differ",
        _seconds(lambda: simulate(work, _MACHINE, Network(3e4, 3e9)), count),
        "s",
        budget=5,
        note=f"{_BUCKETS_OF_RANKS} buckets",
    )


def _seconds(run: Callable[[], object], count: int) -> list[float]:
    def once() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    once()
    return [once() for _ in range(count)]


def _work(buckets: int, rounds: int, ranks: int, jitter: float) -> StepWork:
    """Return a step whose gradients come every 2 ms, 4 MB a bucket."""
    parameters = tuple(
        Parameter(f"layer{i}.weight", (1000, 1000), "float32", 4_000_000) for i in range(buckets)
    )
    ready = 2e6 * np.arange(buckets, dtype=np.float64)
    one_round = RoundWork(2e5, "all_reduce", 4e6 / rounds)
    return StepWork(
        Compute(parameters, ready, float(ready[-1]) + 1e6, 5e7, jitter),
        tuple(BucketWork(i, 4_000_000, (one_round,) * rounds, 3e5) for i in range(buckets)),
        ranks,
        serial=rounds > 1,
    )
