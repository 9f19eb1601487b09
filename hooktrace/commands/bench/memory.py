"""Memory of a tracer that is left on: the process's resident size over a million hook calls.

One model of 25 fake buckets with a staged hook, whose records are the largest.  Its collectives
arrive at once, so that the calls come as fast as the hot path allows; every 400 steps wait for the
drain.  It runs in a process of its own, where nothing else allocates.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from ...staging.hook import staged
from ...staging.operation import Operation
from ...testing import FakeBucket
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .ranks import run_ranks
from .table import Row, row_of

_BUCKETS = 25
_STEPS_BETWEEN_SAMPLES = 400
_MIB = 2**20


def run(*, quick: bool) -> list[Row]:
    """Return the growth since the tracer was made, and over the second half of the calls."""
    calls = 100_000 if quick else 1_000_000
    if not Path("/proc/self/statm").exists():
        return []
    (sizes,) = run_ranks(1, _measure, calls, deadline_s=900)
    half = sizes[len(sizes) // 2 :]
    return [
        row_of(f"memory added by a tracer over {calls:,} hook calls", sizes, "MiB", budget=32.0),
        row_of(
            "the same, growth over the second half",
            [max(half) - half[0]],
            "MiB",
            budget=1.0,
            note="flat: no more than 1 MiB of the allocator's noise",
        ),
    ]


def _measure(calls: int) -> list[float]:
    """Return MiB above the size before the tracer was made, sampled along the calls."""
    parameters = [torch.zeros(16) for _ in range(_BUCKETS)]
    buckets = [
        FakeBucket([p], index=i, is_last=i == _BUCKETS - 1) for i, p in enumerate(parameters)
    ]
    before = resident_bytes()
    sizes = []
    with Tracer() as tracer:
        hook = trace(_local_hook, tracer=tracer)
        for step in range(calls // _BUCKETS):
            for future in [hook(None, bucket) for bucket in buckets]:
                future.wait()  # as DDP does at the end of a backward pass
            if step % _STEPS_BETWEEN_SAMPLES == 0:
                tracer.flush()
                sizes.append((resident_bytes() - before) / _MIB)
        if tracer.losses():
            raise RuntimeError(f"the tracer lost records: {tracer.losses()}")
    return sizes


class _Instant(Operation):
    """An all-reduce that is over when it starts."""

    kind = "all_reduce"

    def start(self) -> Any:
        """Return a future that is done."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(self.tensor)
        return future

    def result(self, future: Any) -> torch.Tensor:
        """Return the tensor as it was."""
        return self.tensor


@staged
def _local_hook(state: Any, bucket: Any) -> Any:
    del state
    return (yield _Instant(bucket.buffer()))


def resident_bytes() -> int:
    """Return the size of this process's memory, in bytes (Linux only)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
