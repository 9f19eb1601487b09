"""Processor time of the drain per bucket: alone, with each exporter, and with all of them.

    25 fake buckets --fp16 hook--> tracer --> drain, exporters --> processor time of their threads

A tracer for each variant, in one process; all train at the same pace, ten steps a second, so that
batches are as large as in a real job and timers (of flushes, of OTLP) run as they do there.  The
stamps are those of a made-up clock, so that which steps are slow, and kept, is the same in each run
and on each machine.  A thread belongs to the variant with whose tracer it came into being; the
sender of OpenTelemetry is one of them, the backend runs in another process.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from ... import hooks
from ...testing import FakeBucket, FakeClock
from ...tracing.trace import trace
from ...tracing.tracer import Tracer
from .backends import EXPORTERS, make_exporter, otlp_sink
from .ranks import run_ranks
from .table import Row, row_of

_BUDGET_US = 100.0
_BUCKETS = 25
_PERIOD_S = 0.1
_STAMP_NS = 20_000
_STEPS_A_SAMPLE = 50
_WARMUP_STEPS = 50
_ALONE, _ALL = "no exporter", "all exporters"
_VARIANTS = {_ALONE: (), **{name: (name,) for name in EXPORTERS}, _ALL: EXPORTERS}

Samples = dict[str, list[float]]
"""By variant: µs of processor time a bucket."""


def run(*, quick: bool) -> Iterator[Row]:
    """Yield the drain's own time, what each exporter adds, and all of it."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return
    samples = 3 if quick else 14
    with otlp_sink() as endpoint:
        (taken,) = run_ranks(1, _measure, samples, endpoint, deadline_s=300)
    yield row_of("the drain alone: steps and records", taken[_ALONE], "µs/bucket")
    for name in EXPORTERS:
        added = [one - alone for one, alone in zip(taken[name], taken[_ALONE], strict=True)]
        yield row_of(f"{name}, added", added, "µs/bucket")
    yield row_of("the drain with all exporters", taken[_ALL], "µs/bucket", budget=_BUDGET_US)


def _measure(samples: int, endpoint: str) -> Samples:
    with tempfile.TemporaryDirectory() as directory:
        variants = {
            name: _Variant(exporters, Path(directory, name), endpoint)
            for name, exporters in _VARIANTS.items()
        }
        pace = _Pace()
        _train(variants, pace, _WARMUP_STEPS)
        taken: Samples = {name: [] for name in variants}
        for _ in range(samples):
            before = {name: variant.spent_ns() for name, variant in variants.items()}
            _train(variants, pace, _STEPS_A_SAMPLE)
            for name, variant in variants.items():
                spent_us = (variant.spent_ns() - before[name]) / 1e3
                taken[name].append(spent_us / (_STEPS_A_SAMPLE * _BUCKETS))
        for variant in variants.values():
            variant.close()
    return taken


def _train(variants: dict[str, _Variant], pace: _Pace, steps: int) -> None:
    for _ in range(steps):
        period_ns = pace.next_period_ns()
        for variant in variants.values():
            variant.step(period_ns)


class _Pace:
    """Ten steps a second, and a step in 200 that says it took three times as long."""

    def __init__(self) -> None:
        self._source = random.Random(0)
        self._next_s = time.monotonic()

    def next_period_ns(self) -> int:
        """Wait for the next step and return how long it is to say the last one took."""
        self._next_s += _PERIOD_S
        time.sleep(max(0.0, self._next_s - time.monotonic()))
        slow = 3 if self._source.random() < 1 / 200 else 1
        return round(slow * self._source.gauss(_PERIOD_S, _PERIOD_S / 200) * 1e9)


class _Variant:
    """A tracer with some exporters, its model, and the threads that came with it."""

    def __init__(self, exporters: tuple[str, ...], directory: Path, endpoint: str) -> None:
        others = set(threading.enumerate())
        self._clock = FakeClock(step_ns=_STAMP_NS)
        self._tracer = Tracer(
            [make_exporter(name, directory, endpoint) for name in exporters],
            clock=self._clock,
            align_clocks=False,
        )
        self._hook = trace(hooks.fp16_compress_hook, tracer=self._tracer)
        parameters = [torch.zeros(16) for _ in range(_BUCKETS)]
        self._buckets = [
            FakeBucket([p], index=i, is_last=i == _BUCKETS - 1) for i, p in enumerate(parameters)
        ]
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
