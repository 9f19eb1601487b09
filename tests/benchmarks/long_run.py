"""The resident size of a process with a tracer that is left on, over a million hook calls.

One model of 25 fake buckets with a staged hook, whose records are the largest, on one rank.  Every
400 steps wait for the drain.
"""

from __future__ import annotations

from collections.abc import Iterator

from hooktrace import hooks
from hooktrace.commands.bench.table import Row
from hooktrace.testing.ranks import run_ranks
from hooktrace.tracing.trace import trace
from hooktrace.tracing.tracer import Tracer

from .harness import STATM, fake_buckets, resident_mib

_BUCKETS = 25
_STEPS_BETWEEN_SAMPLES = 400


def memory(*, quick: bool) -> Iterator[Row]:
    """Yield the growth since the tracer was made, and over the second half of the calls."""
    calls = 100_000 if quick else 1_000_000
    if not STATM.exists():
        return
    (sizes,) = run_ranks(1, _sizes_mib, calls)
    half = sizes[len(sizes) // 2 :]
    what = f"memory added by a tracer over {calls:,} hook calls"
    yield Row(what, sizes, "MiB", budget=32.0)
    what, note = "the same, growth over the second half", "flat: at most 1 MiB of allocator's noise"
    yield Row(what, [max(half) - half[0]], "MiB", budget=1.0, note=note)


def _sizes_mib(calls: int) -> list[float]:
    """Return MiB above the size before the tracer was made, sampled along the calls."""
    buckets = fake_buckets(_BUCKETS)
    before = resident_mib()
    sizes = []
    with Tracer() as tracer:
        hook = trace(hooks.fp16_compress_hook, tracer=tracer)
        for step in range(calls // _BUCKETS):
            for future in [hook(None, bucket) for bucket in buckets]:
                future.wait()  # as DDP does at the end of a backward pass
            if step % _STEPS_BETWEEN_SAMPLES == 0:
                tracer.flush()
                sizes.append(resident_mib() - before)
        if tracer.losses():
            raise RuntimeError(f"the tracer lost records: {tracer.losses()}")
    return sizes
