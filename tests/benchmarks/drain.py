"""What a tracer that is left on costs: processor time of its drain, and memory.

*Processor time per bucket*: alone, with each exporter, and with all of them.

    25 fake buckets --fp16 hook--> tracer --> drain, exporters --> processor time of their threads

A tracer for each variant, in one process; all train at the same pace, ten steps a second, so that
batches are as large as in a real job and timers (of flushes, of OTLP) run as they do there.  The
stamps are those of a made-up clock, so that which steps are slow, and kept, is the same in each run
and on each machine.  A thread belongs to the variant with whose tracer it came into being; the
sender of OpenTelemetry is one of them, the backend runs in another process.

*Memory*: the resident size of a process over a million hook calls of one such model, whose staged
hook has the largest records.  Every 400 steps wait for the drain.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from hooktrace import hooks
from hooktrace.commands.bench.table import Row
from hooktrace.testing import FakeClock
from hooktrace.testing.ranks import run_ranks
from hooktrace.tracing.trace import trace
from hooktrace.tracing.tracer import Tracer

from .harness import EXPORTERS, STATM, fake_buckets, otlp_sink, resident_mib

_BUDGET_US = 60.0
_BUCKETS = 25
_PERIOD_S = 0.1
_STAMP_NS = 20_000
_STEPS_A_SAMPLE = 50
_WARMUP_STEPS = 50
_STEPS_A_SIZE = 400


def drain(*, quick: bool) -> Iterator[Row]:
    """Yield the drain's own time, what each exporter adds, and all of it."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return
    with otlp_sink():
        (taken,) = run_ranks(1, _measure, 3 if quick else 14)
    alone, *each, together = taken.T
    yield Row("the drain alone: steps and records", alone.tolist(), "µs/bucket")
    for name, one in zip(EXPORTERS, each, strict=True):
        yield Row(f"{name}, added", (one - alone).tolist(), "µs/bucket")
    what = "the drain with all exporters"
    yield Row(what, together.tolist(), "µs/bucket", budget=_BUDGET_US)


def _measure(samples: int) -> np.ndarray:
    """Return µs a bucket, of shape (samples, variants): none, each exporter, all of them."""
    with tempfile.TemporaryDirectory() as directory:
        variants = [
            _Variant(names, Path(directory, str(number)))
            for number, names in enumerate([[], *([name] for name in EXPORTERS), EXPORTERS])
        ]
        periods = _periods_ns()
        taken = []
        for steps in (_WARMUP_STEPS, *[_STEPS_A_SAMPLE] * samples):
            before = np.array([variant.spent_ns() for variant in variants])
            for period_ns in islice(periods, steps):
                for variant in variants:
                    variant.step(period_ns)
            spent = np.array([variant.spent_ns() for variant in variants]) - before
            taken.append(spent / 1e3 / (steps * _BUCKETS))
        for variant in variants:
            variant.close()
    return np.array(taken[1:])


def _periods_ns() -> Iterator[int]:
    """Wait for the next of ten steps a second, and yield its period; of one in 200 threefold."""
    source = random.Random(0)
    next_s = time.monotonic()
    while True:
        next_s += _PERIOD_S
        time.sleep(max(0.0, next_s - time.monotonic()))
        slow = 3 if source.random() < 1 / 200 else 1
        yield round(slow * source.gauss(_PERIOD_S, _PERIOD_S / 200) * 1e9)


class _Variant:
    """A tracer with some exporters, its model, and the threads that came with it."""

    def __init__(self, names: Iterable[str], folder: Path) -> None:
        others = set(threading.enumerate())
        exporters = [EXPORTERS[name](folder) for name in names]
        self._clock = FakeClock(step_ns=_STAMP_NS)
        self._tracer = Tracer(exporters, clock=self._clock, align_clocks=False)
        self._hook = trace(hooks.fp16_compress_hook, tracer=self._tracer)
        self._buckets = fake_buckets(_BUCKETS)
        for _ in range(2):  # a step is complete, and exported, when the next one begins
            self.step(round(_PERIOD_S * 1e9))
        self._tracer.flush()
        self._threads = [
            thread
            for thread in set(threading.enumerate()) - others
            if not isinstance(thread, threading._DummyThread)  # a callback's, which gloo made
        ]

    def step(self, period_ns: int) -> None:
        """Call the hook for each bucket, and say that ``period_ns`` passed."""
        for bucket in self._buckets:
            self._hook(None, bucket).wait()
        self._clock.advance(period_ns)

    def spent_ns(self) -> int:
        """Return the processor time of the drain and of the exporters' own threads."""
        clocks = [time.pthread_getcpuclockid(t.ident or 0) for t in self._threads if t.is_alive()]
        return sum(map(time.clock_gettime_ns, clocks))

    def close(self) -> None:
        """Close the tracer.  Raises ``RuntimeError`` where it lost records or an exporter."""
        lost = {**self._tracer.losses(), **self._tracer.failures()}
        self._tracer.close()
        if lost:
            raise RuntimeError(f"the tracer lost records or exporters: {lost}")


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
            if step % _STEPS_A_SIZE == 0:
                tracer.flush()
                sizes.append(resident_mib() - before)
        if tracer.losses():
            raise RuntimeError(f"the tracer lost records: {tracer.losses()}")
    return sizes
