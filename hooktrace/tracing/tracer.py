"""Tracer: owns the ring, the drain, the exporters and the clock, and answers questions.

    TracedHook --push--> ring --> drain thread --> memory (steps(), summary()) and exporters

A tracer lives as long as the job; ``close()`` has a deadline and may be called any number of times.
At interpreter exit open tracers are closed.  A forked child gets an empty tracer without exporters:
files, sockets and threads stay with the parent.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, TypeVar, get_args

import torch

from ..capture.clocks import Clock, EventPool, WallAnchor
from ..capture.layout import LayoutTracker
from ..capture.ring import Ring
from ..exporters.base import Exporter
from ..ranks.clock_sync import ClockSync
from ..ranks.job import describe_run
from ..records import (
    AnomalyRecord,
    BucketRecord,
    ClockRecord,
    LayoutRecord,
    RunInfo,
    Scope,
    SkewRecord,
    StepRecord,
)
from ..records.errors import AnomalyError
from ..records.summary import ModelSummary, summarize
from .assembler import Assembler
from .drain import Drain, Entry
from .recent import RecentRecords

__all__ = ["Tracer", "default_tracer"]

logger = logging.getLogger("hooktrace")

OnAnomaly = Literal["record", "warn", "raise"]

R = TypeVar("R")

_ERROR_EVERY = 100


class Tracer:
    """Collects what traced hooks record, keeps the last of it and hands all of it to exporters.

    ``exporters``: where records go; they belong to the tracer, which closes them.  ``clock``:
    returns ns that never go back.  ``run_id``: the same on all ranks; by default the ranks agree on
    one through torch's store.  ``ring_capacity``: hook calls that may wait for the drain.
    ``keep_steps``, ``keep_buckets``: how much ``steps()`` and ``buckets()`` can look back.
    ``error_every``: steps between two samples, of the compression error and of what opaque hooks
    send; 0 for none, and the same on all ranks.  ``error_all_buckets``: probe all buckets of such a
    step, not one in turn.  ``error``: ``global`` compares results with the lossless average of all
    ranks; ``local`` what compress and decompress of a staged hook do to this rank's own gradients,
    without sending anything.  ``debug``: look at every bucket of every step for NaN and inf, and
    for hooks that hold or change a bucket's memory; every call then takes much longer.
    ``align_clocks``: compare the ranks' clocks now and then, over connections to rank 0.
    ``on_anomaly``: an anomaly is always recorded; ``warn`` logs it too, ``raise`` also ends the
    next backward pass on the rank that saw it, with ``AnomalyError``.
    ``interval_s``: how often the drain wakes.  ``close_timeout_s``: the deadline of ``close()``.
    """

    holds = False
    """What is pushed is in the ring."""

    def __init__(
        self,
        exporters: Sequence[Exporter] = (),
        *,
        clock: Clock = time.perf_counter_ns,
        run_id: str | None = None,
        ring_capacity: int = 16384,
        keep_steps: int = 1024,
        keep_buckets: int = 8192,
        error_every: int = _ERROR_EVERY,
        error_all_buckets: bool = False,
        error: Scope = "global",
        debug: bool = False,
        align_clocks: bool = True,
        on_anomaly: OnAnomaly = "record",
        interval_s: float = 0.5,
        close_timeout_s: float = 10.0,
    ) -> None:
        if error_every < 0:
            raise ValueError(
                f"error_every={error_every} counts steps; pass 0 for no probes, or 1 or more"
            )
        if error not in get_args(Scope):
            raise ValueError(f"error={error!r} is not known; pass {' or '.join(get_args(Scope))}")
        if on_anomaly not in get_args(OnAnomaly):
            raise ValueError(
                f"on_anomaly={on_anomaly!r} is not known; pass {', '.join(get_args(OnAnomaly))}"
            )
        self._on_anomaly = on_anomaly
        self._alarm: AnomalyRecord | None = None
        self.error_every = error_every
        self.error_all_buckets = error_all_buckets
        self.error: Scope = error
        self.debug = debug
        self._align_clocks = align_clocks
        self.clock = clock
        self.recording = True
        """Whether traced hooks record; false once the tracer is closed."""
        self._exporters = list(exporters)
        self._run_id = run_id
        self._ring_capacity = ring_capacity
        self._keep = (keep_steps, keep_buckets)
        self._interval_s = interval_s
        self._close_timeout_s = close_timeout_s
        self._anchor = WallAnchor.measure(clock)
        self._model_names: set[str] = set()
        self._model_numbers = itertools.count()
        self._layouts: weakref.WeakSet[LayoutTracker] = weakref.WeakSet()
        self._closing = threading.RLock()  # a signal handler may close while close() runs
        self._layouts_lock = threading.RLock()
        self._begin()
        _open_tracers.add(self)

    def _begin(self) -> None:
        """Make ring and drain; the drain's thread starts with the first record."""
        self.event_pool = EventPool(lambda: torch.cuda.Event(enable_timing=True))
        self._ring: Ring[Entry] = Ring(self._ring_capacity)
        self.push = self._ring.push
        """Takes one ended call, or what a probe has found; never blocks."""
        self._recent = RecentRecords(*self._keep)
        self._clocks: ClockSync | None = None
        self.started = False
        """Whether the drain's thread runs."""
        self._start_lock = threading.Lock()
        self._drain = Drain(
            self._ring,
            Assembler(self.event_pool),
            self._recent,
            self._exporters,
            run_info=self.run_info,
            in_flight=self._count_in_flight,
            on_anomalies=self._react,
            interval_s=self._interval_s,
        )

    def start(self) -> None:
        """Start the drain's thread, if it does not run yet; called by the first hook.

        Where the system gives no thread, recording ends here, and training goes on untraced.
        """
        with self._start_lock:
            if self.started:
                return
            try:
                self._drain.start()
            except RuntimeError as error:
                self.recording = False
                logger.warning(
                    "tracing is off, since its thread could not be started (%s); raise the limit "
                    "of threads (ulimit -u) to have it",
                    error,
                )
            else:
                self.started = True
                if self._align_clocks:
                    self._clocks = ClockSync(self.clock, self._ring.push)
                    if not self.recording:  # closed meanwhile
                        self._clocks.close()

    def announce(self, layout: LayoutRecord) -> None:
        """Take the layout of a new generation; called by hooks, in the first steps of each."""
        self._ring.push(layout)

    def clock_offset(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""
        return None if self._clocks is None else self._clocks.offset_at(host_ns)

    def wake(self) -> None:
        """Let the drain work now; does not wait for it."""
        self._drain.wake()

    def note(self, anomaly: AnomalyRecord) -> None:
        """Take an anomaly that was not seen in the records of calls."""
        self.start()
        self._ring.push(anomaly)

    def _react(self, anomalies: Sequence[AnomalyRecord]) -> None:
        """Do with anomalies what ``on_anomaly`` says; called by the drain."""
        if self._on_anomaly == "record":
            return
        for anomaly in anomalies:
            logger.warning("%s: %s", anomaly.kind, anomaly.message)
        # A hook's own exception was raised already.
        unheard = [anomaly for anomaly in anomalies if anomaly.kind != "hook_exception"]
        with self._closing:
            if self._on_anomaly == "raise" and unheard and self.recording:
                # Hooks look at nothing but this flag, and come to `raise_alarm` when it is down.
                self._alarm, self.recording = unheard[0], False

    def raise_alarm(self) -> None:
        """Raise ``AnomalyError`` for what the drain saw, once; called by hooks, in backward."""
        with self._closing:
            alarm, self._alarm = self._alarm, None
            if alarm is not None:
                self.recording = True
        if alarm is not None:
            raise AnomalyError(alarm.message)

    def adopt(self, layout: LayoutTracker) -> None:
        """Take note of a traced hook's layout, to know its calls in flight."""
        with self._layouts_lock:
            self._layouts.add(layout)

    def name_model(self, wanted: str | None) -> str:
        """Return a name for a model that no other model of this tracer has."""
        name = wanted or f"model{next(self._model_numbers)}"
        candidates = itertools.chain([name], (f"{name}#{n}" for n in itertools.count(2)))
        unique = next(c for c in candidates if c not in self._model_names)
        self._model_names.add(unique)
        return unique

    def run_info(self) -> RunInfo:
        """Return who this process is; once torch.distributed is initialised, with its rank."""
        return describe_run(self._run_id, self._anchor)

    def steps(self, model: str | None = None) -> list[StepRecord]:
        """Return the last steps, oldest first, of one model or of all."""
        self.flush()
        return [s for s, _ in self._recent.steps() if model in (None, s.model)]

    def buckets(self, model: str | None = None) -> list[BucketRecord]:
        """Return the buckets of the last steps, oldest first, of one model or of all."""
        self.flush()
        completed = self._recent.steps()
        return [b for s, buckets in completed if model in (None, s.model) for b in buckets]

    def records(self, kind: type[R]) -> list[R]:
        """Return the last records of a kind that is no step or bucket, oldest first."""
        self.flush()
        return self._recent.of(kind)

    def layouts(self) -> list[LayoutRecord]:
        """Return the bucket layouts, oldest first: one a generation."""
        return self.records(LayoutRecord)

    def anomalies(self) -> list[AnomalyRecord]:
        """Return what went wrong in hooks, oldest first."""
        return self.records(AnomalyRecord)

    def skews(self) -> list[SkewRecord]:
        """Return when the ranks had probed buckets ready, oldest first."""
        return self.records(SkewRecord)

    def clocks(self) -> list[ClockRecord]:
        """Return this rank's measurements of its clock against rank 0's, oldest first."""
        return self.records(ClockRecord)

    def summary(self) -> list[ModelSummary]:
        """Return percentiles of the kept steps, one summary a model."""
        self.flush()
        return summarize(self._recent.steps())

    def losses(self) -> dict[str, int]:
        """Return how many records were lost, by reason; empty when none was.

        ``ring_full``: the drain did not keep up.  ``unfinished``: still in flight at close.
        ``late``: completed steps after its own.  ``device_unresolved``: device times missing.
        ``internal_error``: a defect of hooktrace (drain cycles, not records).
        ``not_exported``: an exporter was disabled (once for each such exporter).  An exporter's
        own losses follow its name: ``trace_file_buckets``, ``opentelemetry_spans``.
        """
        return self._drain.losses

    def failures(self) -> dict[str, int]:
        """Return the exporters that raised and were disabled, by name."""
        return self._drain.failures

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was recorded is exported; false when the timeout passed first.

        A step counts once its last bucket is there, on a device once the device has passed it.
        """
        open_ = self.recording or self._alarm is not None
        return self._drain.flush(timeout_s) if self.started and open_ else True

    def close(self, timeout_s: float | None = None) -> bool:
        """Export what is left, close the exporters and stop recording.

        Hooks stay registered and run on untraced.  Returns false, and logs what to do, when the
        deadline (``close_timeout_s`` by default) passed first.  A further call does nothing, or
        waits again where the deadline had passed.
        """
        with self._closing:
            first, self.recording = self.recording or self._alarm is not None, False
            self._alarm = None
        _open_tracers.discard(self)
        if first:
            self._leave_samplings()
            if self._clocks is not None:
                self._clocks.close()
        timeout_s = self._close_timeout_s if timeout_s is None else timeout_s
        if self._drain.stop(timeout_s):
            return True
        if first:
            logger.warning(
                "the tracer could not close within %.1f s, %d call(s) wait in its ring; an "
                "exporter hangs or is slow: check its backend, or pass Tracer(close_timeout_s=...)",
                timeout_s,
                len(self._ring),
            )
        return False

    def __enter__(self) -> Tracer:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _leave_samplings(self) -> None:
        """Tell the other ranks that this one's models are sampled no more."""
        with self._layouts_lock:
            trackers = list(self._layouts)
        for model in [m for tracker in trackers for m in tracker.models]:
            if model.sampling is not None:
                model.sampling.leave()

    def _count_in_flight(self) -> int:
        with self._layouts_lock:
            trackers = list(self._layouts)
        return sum(1 for t in trackers for m in t.models for _ in m.in_flight())

    def _reset_in_child(self) -> None:
        """Begin anew in a forked child, whose copy of the drain has no thread."""
        self._closing = threading.RLock()
        self._layouts_lock = threading.RLock()
        if self._exporters:
            names = ", ".join(e.name for e in self._exporters)
            self._exporters = [_LeftBehind(names)]
        self._begin()
        for layout in list(self._layouts):
            layout.recheck()


class _LeftBehind:
    """Stands in a forked child for the parent's exporters, and says once that they are gone."""

    def __init__(self, names: str) -> None:
        self.name = names

    def export(self, batch: object) -> None:
        """Say why nothing is exported."""
        raise RuntimeError(
            "this process was forked after its tracer was made, and files, sockets and threads "
            "stay with the parent; make a new Tracer in the child"
        )

    def close(self) -> None:
        """Do nothing."""


_open_tracers: set[Tracer] = set()
_default: Tracer | None = None
_default_lock = threading.Lock()


def default_tracer() -> Tracer:
    """Return the tracer that ``trace()`` uses when it is given none.

    It is made on first use, set up from ``HOOKTRACE_*`` environment variables (``settings.py``),
    and made anew when it was closed.
    """
    global _default  # noqa: PLW0603  # the one process-wide tracer
    from .settings import (
        debug_from_environment,
        error_every_from_environment,
        exporters_from_environment,
        run_id_from_environment,
    )

    with _default_lock:
        if _default is None or not _default.recording:
            _default = Tracer(
                exporters_from_environment(),
                run_id=run_id_from_environment(),
                error_every=error_every_from_environment(_ERROR_EVERY),
                debug=debug_from_environment(),
            )
        return _default


def _close_all() -> None:
    for tracer in list(_open_tracers):
        try:
            tracer.close()
        except Exception:
            logger.exception("a tracer could not be closed at exit; call its close() before")


def _after_fork() -> None:
    global _default_lock  # noqa: PLW0603  # the parent may have held it
    _default_lock = threading.Lock()
    for tracer in list(_open_tracers):
        tracer._reset_in_child()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
