"""Tracer: owns the ring, the drain, the exporters and the clock; what users make, ask and close.

    TracedHook --push--> ring --> drain's thread: drain.py --> memory and exporters
               <--State-----------------anomalies--+

A tracer lives as long as the job; ``close()`` has a deadline and may be called any number of times.
What is open at exit is closed then; in a forked child its tracers are closed.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from ..exporters.base import Exporter, checked, redirected
from ..exporters.record_file import RecordFileExporter
from ..probes.other_sampler import close_window
from ..ranks import native_calls
from ..ranks.control import FROM_ONE_STEP, Command, CommandResult, Verb, send_command
from ..records import (
    AnomalyRecord,
    AssignmentRecord,
    Batch,
    BucketRecord,
    ClockRecord,
    CompletedStep,
    HangRecord,
    RunInfo,
    SkewRecord,
    StepRecord,
)
from ..records.errors import AnomalyError, UsageError
from ..records.summary import ModelSummary, summarize
from ..staging.backward import hear_of_finalization, hear_of_scalers
from ..staging.calls import Clock, clock_anchor
from ..staging.devices import EventPool
from ..staging.job import current_rank, describe_run, new_lock
from ..staging.ring import Ring, State
from ..staging.slots import LayoutTracker, ModelState
from ..staging.units import ShardedModel, UnitWaits
from . import process_channel
from .drain import Drain, Pipeline, RecentRecords
from .options import ASKING, OnAnomaly, OnHang, check_arguments, from_environment

if TYPE_CHECKING:
    from ..ranks.channel.channel import Channel

logger = logging.getLogger("hooktrace")

R = TypeVar("R")


class Tracer:
    """Collects what traced hooks record, keeps the last of it and hands all of it to exporters.

    - ``exporters``: where records go; they belong to the tracer, which closes them.
    - ``clock``: returns ns that never go back; for tests.
    - ``run_id``: the same on all ranks; by default they agree on one through torch's store.
    - ``ring_capacity``: hook calls that may wait for the export thread; more are dropped and
      counted.
    - ``keep_steps``: how many steps ``steps()`` can look back.
    - ``keep_buckets``: how many buckets ``buckets()`` can look back.
    - ``error_every``: steps between two samples, of the compression error and of collectives that
      are none of DDP's; 0 for none, and the same on all ranks.
    - ``error_all_buckets``: sample all buckets of such a step, not one in turn.
    - ``debug``: look at every bucket of every step for NaN and inf, and for results that change
      after they were given; every call then takes much longer.
    - ``align_clocks``: compare the ranks' clocks now and then, over the channel.
    - ``channel``: connect the ranks over TCP, one connection a host to rank 0, for clocks, control
      and the explanation of hangs; the same on all ranks.
    - ``on_anomaly``: an anomaly is always recorded; ``warn`` logs it too, ``raise`` also ends the
      next backward pass on the rank that saw it, with ``AnomalyError``.
    - ``hang_after_s``: seconds that a bucket may wait before the ranks are asked why; by default
      ten, or 20 times the 99th percentile of its model's buckets where that is longer.
    - ``on_hang``: a hang is always recorded; ``warn`` logs it too, ``dump`` also writes stacks,
      calls and collectives of each rank beside its records, ``abort`` ends the process with exit
      code 75, so that ``torchrun --max-restarts`` starts it again.
    - ``first_step``: the number of a model's first step, for a resumed job; the same on all ranks.
    - ``interval_s``: how often the export thread wakes.

    Raises ``ValueError`` for an option that cannot work, ``TypeError`` for what is no exporter.
    """

    def __init__(
        self,
        exporters: Sequence[Exporter] = (),
        *,
        clock: Clock = time.perf_counter_ns,
        run_id: str | None = None,
        ring_capacity: int = 16384,
        keep_steps: int = 1024,
        keep_buckets: int = 8192,
        error_every: int = 100,
        error_all_buckets: bool = False,
        debug: bool = False,
        align_clocks: bool = True,
        channel: bool = True,
        on_anomaly: OnAnomaly = "record",
        hang_after_s: float | None = None,
        on_hang: OnHang = "warn",
        first_step: int = 0,
        interval_s: float = 0.5,
    ) -> None:
        check_arguments(locals())
        self._on_anomaly = on_anomaly
        self.needs_hook = debug or on_anomaly == "raise"  # which no hookless model can do
        self._to_raise: AnomalyError | None = None
        self.state = State.RECORDING
        self.clock = clock
        self.first_step = first_step
        self.error_every = error_every
        self.error_all_buckets = error_all_buckets
        self.debug = debug
        self.models = TracedModels()
        self.align_clocks = align_clocks
        self._wants_channel = channel
        self._exporters: Sequence[Exporter] = redirected(checked(exporters))
        self.record_files = [e for e in self._exporters if isinstance(e, RecordFileExporter)]
        self._run_id = run_id
        self._anchor = clock_anchor(clock)
        self._keep = (keep_steps, keep_buckets)
        self._interval_s = interval_s
        self.hang_watch = process_channel.TracerHangs(self, hang_after_s, on_hang)
        """What is watched of this tracer, and what it does about hangs."""
        self.ring: Ring = Ring(ring_capacity)
        self.push = self.ring.push
        """Takes a step's calls, a record, or what a probe has found."""
        self._begin()
        open_tracers.add(self)
        hear_of_scalers()
        hear_of_finalization()

    def _begin(self) -> None:
        """Make what a forked child has not; the drain's thread starts with the first call."""
        self._lock = threading.RLock()  # a signal handler may close while close() runs
        self._channel: Channel | None = None
        self.started = False  # the drain's thread
        self.event_pool = EventPool()
        self.unit_waits = UnitWaits(self.event_pool, self.push)
        self._recent = RecentRecords(*self._keep)
        self.listeners: list[Callable[[Batch], None]] = [self._recent.add]
        """Parts of hooktrace that have all batches, before the exporters, in the drain's thread."""
        self._pipeline = Pipeline(self, self._exporters)
        self._drain = Drain(self._pipeline.cycle, self._interval_s)

    def close_in_child(self) -> None:
        """Be closed in a forked child, and empty: threads, files and sockets are the parent's."""
        self.ring.clear()
        self.models.begin_in_child()
        self._exporters = ()
        self.record_files = []
        self._begin()
        self.state = State.CLOSED

    def start(self) -> None:
        """Start the drain's thread, if it does not run yet; called by the first hook.

        Where the system gives no thread, training goes on untraced.
        """
        with self._lock:
            if self.started or self.state is State.CLOSED:
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
                return
            self.started = True
            if self._wants_channel:
                self._channel = process_channel.join(self)

    def pause_watchdog(self) -> AbstractContextManager[None]:
        """Say that ranks may wait for this one while a ``with`` block runs: a checkpoint, ..."""
        return self.hang_watch.pause()

    @property
    def recording(self) -> bool:
        """Whether hooks record; may be switched off and on until the tracer is closed."""
        return self.state is State.RECORDING

    @recording.setter
    def recording(self, on: bool) -> None:
        """Switch recording on or off; a closed tracer stays closed."""
        with self._lock:
            if self.state is not State.CLOSED:
                self.state = State.RECORDING if on else State.OFF
        if not on:
            close_window(self)

    def losses(self) -> dict[str, int]:
        """Return how many records were lost, by reason: ``hooktrace.records.losses.LOSSES``.

        An exporter's own losses follow its name: ``record_file_buckets``.
        """
        return dict(self._pipeline.losses.published)

    def failures(self) -> dict[str, int]:
        """Return the exporters that raised and were disabled, by name."""
        return {name: n for name, n in self._pipeline.exporters.failures.items() if n}

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was recorded is exported; false when the timeout passed first.

        On a device that is what the device has passed.  A timeout of 0 has it begin.
        """
        if not self.started or self.state is State.CLOSED:
            return True
        return self._drain.flush(timeout_s)

    def raise_alarm(self) -> None:
        """Raise ``AnomalyError`` for what the drain saw, once; called by hooks, in backward."""
        with self._lock:
            if self.state is not State.ALARMED:
                return
            self.state = State.RECORDING
            error = self._to_raise
        assert error is not None
        raise error

    def hear_of(self, anomalies: Sequence[AnomalyRecord]) -> None:
        """Do about anomalies what ``on_anomaly`` says; in the drain's thread."""
        if not anomalies or self._on_anomaly == "record":  # before any lock
            return
        for anomaly in anomalies:
            logger.warning("%s: %s; see %s", anomaly.kind, anomaly.message, anomaly.docs)
        # A hook's own exception was raised already; a stall is over, and no fault of the hook.
        unheard = [a for a in anomalies if a.kind not in {"hook_exception", "stall"}]
        with self._lock:
            if self._on_anomaly == "raise" and unheard and self.state is State.RECORDING:
                self._to_raise = AnomalyError(unheard[0].message)
                self.state = State.ALARMED

    def close(self, timeout_s: float = 10.0) -> bool:
        """Export what is left, close the exporters and stop recording.

        Hooks stay registered and run on untraced.  Returns false, and logs what to do, when the
        deadline passed first.  A further call does nothing, or waits again where it had passed.
        """
        with self._lock:
            first, self.state = self.state is not State.CLOSED, State.CLOSED
        open_tracers.discard(self)
        if first:
            self.models.leave(self.ring)
            close_window(self)
            process_channel.leave(self)
        if self._drain.stop(timeout_s):
            return True
        if first:
            logger.warning(
                "the tracer could not close within %.1f s, %d call(s) wait in its ring; an "
                "exporter hangs or is slow: check its backend, or call close(timeout_s=...)",
                timeout_s,
                self.ring.filled,
            )
        return False

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What was recorded: the last of it.

    def steps(self, model: str | None = None) -> list[StepRecord]:
        """Return the last steps, oldest first, of one model or of all."""
        return [step for step, _ in self._completed(model)]

    def buckets(self, model: str | None = None, *, wait: bool = True) -> list[BucketRecord]:
        """Return the buckets of the last steps, oldest first, of one model or of all.

        ``wait=False``: of those that are in memory by now.
        """
        return [one for _, buckets in self._completed(model, wait=wait) for one in buckets]

    def summary(self, *, last: int | None = None, wait: bool = True) -> list[ModelSummary]:
        """Return percentiles of the kept steps, one summary a model.

        ``last``: of so many steps at the end.  ``wait=False``: of what is in memory by now.
        """
        completed = self._completed(wait=wait)
        return summarize(completed if last is None else completed[-last:])

    def assignments(self) -> list[AssignmentRecord]:
        """Return the bucket assignments, oldest first: one a rebuild."""
        return self.records(AssignmentRecord)

    def anomalies(self) -> list[AnomalyRecord]:
        """Return what went wrong in hooks, oldest first."""
        return self.records(AnomalyRecord)

    def skews(self) -> list[SkewRecord]:
        """Return when the ranks had checked buckets ready, oldest first."""
        return self.records(SkewRecord)

    def hangs(self) -> list[HangRecord]:
        """Return when ranks waited for others that did not come, and when that ended."""
        return self.records(HangRecord)

    def clocks(self) -> list[ClockRecord]:
        """Return this rank's measurements of its clock against rank 0's, oldest first."""
        return self.records(ClockRecord)

    def records(self, kind: type[R]) -> list[R]:
        """Return the last records of any kind that is no step or bucket, oldest first."""
        self.flush()
        return self._recent.of(kind)

    def _completed(self, model: str | None = None, *, wait: bool = True) -> list[CompletedStep]:
        if wait:
            self.flush()
        return [(s, buckets) for s, buckets in self._recent.steps() if model in (None, s.model)]

    # As one of its job's: what the other ranks, and commands to all of them, need of it.

    def command(self, verb: Verb, number: int = 0, *, rank: int = -1) -> CommandResult:
        """Have all ranks carry out a command of ``hooktrace ctl``; return what each of them did.

        ``number``: of steps, for ``detail`` and ``probe``.  ``rank``: whose ``stacks``, -1 for all.
        Waits for the ranks for 2 s at most (``flush``: 25 s), and not for a collective.  Raises
        ``UsageError`` where rank 0 is not reached, or no number of steps is given.
        """
        if verb in FROM_ONE_STEP and number < 1:
            raise UsageError(f"{verb} of {number} steps; pass a number of steps from 1 on")
        address = None if self._channel is None else self._channel.hub
        if address is None or not address.places:
            raise UsageError(
                "this rank has no channel to the others: it begins with the first backward pass, "
                "unless Tracer(channel=False); rank 0 has to trace too"
            )
        return send_command(address, Command(verb=verb, number=number, rank=rank))

    def run_info(self) -> RunInfo:
        """Return who this process is; once torch.distributed is initialised, with its rank."""
        return describe_run(self._run_id, self._anchor)

    def clock_offset(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""
        channel = self._channel
        if channel is None or not self.align_clocks or channel.clock is not self.clock:
            return None
        return channel.offset_at(host_ns)


class TracedModels:
    """Knows the assignments of all traced hooks that are alive; safe from several threads."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        """By name: how many models were to have it."""
        self.said: set[str] = set()
        """What was logged of a model, and is not of others alike: a job may make many."""
        self._number = 0
        self._assignments: weakref.WeakSet[LayoutTracker | ShardedModel] = weakref.WeakSet()
        self._lock = threading.RLock()  # a signal handler may close the tracer meanwhile

    def name(self, wanted: str | None) -> str:
        """Return a name for a model that no other one has."""
        with self._lock:
            name = wanted or f"model{self._number}"
            self._number += wanted is None
            unique = name
            while unique in self._uses:
                self._uses[name] += 1
                unique = f"{name}#{self._uses[name]}"
            self._uses[unique] = 1
            return unique

    def register_layout(self, layout: LayoutTracker | ShardedModel) -> None:
        """Take note of a traced hook's layout."""
        with self._lock:
            self._assignments.add(layout)

    def leave(self, ring: Ring) -> None:
        """End what is under way: steps of sharded models, and sampling, as the other ranks hear."""
        for layout in self._layouts():
            if isinstance(layout, ShardedModel):
                layout.leave()
        for model in self.all():
            model.let_go_of_lost(ring)
            if model.sampling is not None:
                model.sampling.leave()

    def begin_in_child(self) -> None:
        """Let go of the parent's connections in a forked child, which speaks to no other rank."""
        self._lock = threading.RLock()
        for model in self.all():
            if model.sampling is not None:
                model.sampling.begin_in_child()

    def all(self) -> list[ModelState]:
        """Return the models whose hooks are alive."""
        return [model for layout in self._layouts() for model in layout.models]

    def _layouts(self) -> list[LayoutTracker | ShardedModel]:
        with self._lock:
            return list(self._assignments)


open_tracers: set[Tracer] = set()


def _close_all() -> None:
    for tracer in list(open_tracers):
        try:
            tracer.close()
        except Exception:
            logger.exception("a tracer could not be closed at exit; call its close() before")
    native_calls.wait()


def _close_all_in_child() -> None:
    for tracer in list(open_tracers):
        tracer.close_in_child()
    open_tracers.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_close_all_in_child)


class DefaultTracer(Tracer):
    """The tracer of a process that made none itself, and may not know that nothing is kept."""

    def close(self, timeout_s: float = 10.0) -> bool:
        """Close, and log once on rank 0 what was seen where nothing says who keeps it."""
        is_first = self.state is not State.CLOSED
        is_closed = super().close(timeout_s)
        is_unasked = not self._exporters and os.environ.keys().isdisjoint(ASKING)
        if is_first and is_unasked and current_rank() == 0 and (steps := len(self.steps())):
            seen = [summary.headline for summary in self.summary()]
            logger.warning(
                "nothing keeps what the default tracer saw: %s; to keep the next run, set "
                "HOOKTRACE_RECORD_DIR=runs/mine, then: hooktrace report runs/mine",
                "; ".join(seen) or f"{steps} step{'s'[: steps > 1]}, too few for medians",
            )
        return is_closed


_default: Tracer | None = None
_making = new_lock()


def default_tracer() -> Tracer:
    """Return the tracer that ``trace()`` uses when it is given none, made on first use.

    It is set up from ``HOOKTRACE_*`` environment variables, and made anew when it was closed.
    """
    global _default  # noqa: PLW0603  # the one process-wide tracer
    with _making:
        if _default is None or _default.state is State.CLOSED:
            _default = DefaultTracer(**from_environment())
        return _default
