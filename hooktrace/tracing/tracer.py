"""Tracer: owns the ring, the drain, the exporters and the clock; what users make and close.

    TracedHook --push--> ring --> drain's thread: pipeline.py --> memory (recent.py) and exporters
               <--state-- state.py <--anomalies--------+

A tracer lives as long as the job; ``close()`` has a deadline and may be called any number of times.
What is open at exit is closed then.  In a forked child a tracer begins anew: the copy of a drain
has no thread, and files, sockets and threads of exporters stay with the parent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

from ..exporters.base import Exporter, checked
from ..records import AnomalyRecord, Scope
from ..records.errors import AnomalyError
from ..staging.backward import hear_of_finalization, hear_of_scalers
from ..staging.calls import Clock, clock_anchor
from ..staging.devices import EventPool
from ..staging.ring import Ring
from ..staging.unit_waits import UnitWaits
from .drain import Drain
from .export import LeftWithParent
from .in_job import InJob
from .models import TracedModels
from .options import OnAnomaly, OnHang, check_arguments
from .pipeline import Pipeline
from .recent import Queries, RecentRecords
from .redirected import redirected
from .state import Alarm, State, open_tracers

if TYPE_CHECKING:
    from ..ranks.channel.channel import Channel
    from .hangs import TracerHangs

logger = logging.getLogger("hooktrace")


class Tracer(Queries, InJob):
    """Collects what traced hooks record, keeps the last of it and hands all of it to exporters.

    - ``exporters``: where records go; they belong to the tracer, which closes them.
    - ``clock``: returns ns that never go back; for tests.
    - ``run_id``: the same on all ranks; by default they agree on one through torch's store.
    - ``ring_capacity``: hook calls that may wait for the drain; more are dropped and counted.
    - ``keep_steps``: how many steps ``steps()`` can look back.
    - ``keep_buckets``: how many buckets ``buckets()`` can look back.
    - ``error_every``: steps between two samples, of the compression error and of what opaque hooks
      send; 0 for none, and the same on all ranks.
    - ``error_all_buckets``: probe all buckets of such a step, not one in turn.
    - ``error``: ``global`` compares results with the lossless average of all ranks; ``local`` has
      a staged hook compress and decompress this rank's gradients alone, and sends nothing.
    - ``debug``: look at every bucket of every step for NaN and inf, and for hooks that hold or
      change a bucket's memory; every call then takes much longer.
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
    - ``interval_s``: how often the drain wakes.
    - ``close_timeout_s``: the deadline of ``close()``.

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
        error: Scope = "global",
        debug: bool = False,
        align_clocks: bool = True,
        channel: bool = True,
        on_anomaly: OnAnomaly = "record",
        hang_after_s: float | None = None,
        on_hang: OnHang = "warn",
        first_step: int = 0,
        interval_s: float = 0.5,
        close_timeout_s: float = 10.0,
    ) -> None:
        check_arguments(locals())
        self._alarm = Alarm(on_anomaly)
        self._to_raise: AnomalyError | None = None
        self.state = State.RECORDING
        self.clock = clock
        self.first_step = first_step
        """Read when a model makes its first step."""
        self.error_every = error_every
        self.error_all_buckets = error_all_buckets
        self.error: Scope = error
        self.debug = debug
        self.models = TracedModels()
        """The models whose hooks report here."""
        self.align_clocks = align_clocks
        self._wants_channel = channel
        self._exporters: Sequence[Exporter] = redirected(checked(exporters))
        self._run_id = run_id
        self._anchor = clock_anchor(clock)
        self._keep = (keep_steps, keep_buckets)
        self._interval_s = interval_s
        self._close_timeout_s = close_timeout_s
        self._hang_options = (hang_after_s, on_hang)
        self._ring: Ring[object] = Ring(ring_capacity)
        self.push = self._ring.push
        """Takes an ended call, a record, or what a probe has found; never blocks."""
        self._begin()
        open_tracers.add(self)
        hear_of_scalers()
        hear_of_finalization()

    def _begin(self) -> None:
        """Make what a forked child needs anew; the drain's thread starts with the first call."""
        self._lock = threading.RLock()  # a signal handler may close while close() runs
        self._channel: Channel | None = None
        self._leave_channel: Callable[[Tracer], None] | None = None
        self.started = False
        """Whether the drain's thread runs."""
        self.event_pool = EventPool()
        self.unit_waits = UnitWaits(self.event_pool, self.push)
        """What the computing streams of sharded models have not waited for yet."""
        self._recent = RecentRecords(*self._keep)
        self._pipeline = Pipeline(
            self._ring,
            self._recent,
            self._exporters,
            run_info=self.run_info,
            in_flight=self.models.count_in_flight,
            on_anomalies=self._hear,
        )
        self._drain = Drain(self._pipeline.cycle, self._interval_s)

    def begin_in_child(self) -> None:
        """Begin anew in a forked child, with nothing of the parent's records and exporters."""
        self._ring.clear()
        self.models.begin_in_child()
        if self._exporters:
            self._exporters = [LeftWithParent(self._pipeline.exporters.names)]
        self._begin()

    def start(self) -> None:
        """Start the drain's thread, if it does not run yet; called by the first hook.

        A closed tracer stays closed.  Where the system gives no thread, recording is switched off,
        and training goes on untraced.
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
                self._join_channel()

    def _join_channel(self) -> None:
        from . import process_channel  # which a tracer that starts nothing does without

        self._leave_channel = process_channel.leave
        self._channel = process_channel.join(self)
        if self.state is State.CLOSED:  # by a signal handler, meanwhile
            self._leave_channel(self)

    @cached_property
    def hang_watch(self) -> TracerHangs:
        """What is watched of this tracer, and what it does about hangs."""
        from .hangs import TracerHangs

        return TracerHangs(self, *self._hang_options)

    def pause_watchdog(self) -> AbstractContextManager[None]:
        """Say that ranks may wait for this one while a ``with`` block runs: a checkpoint, ..."""
        return self.hang_watch.pauses.open()

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

    def losses(self) -> dict[str, int]:
        """Return how many records were lost, by reason; empty when none was.

        ``LOSSES`` in ``hooktrace.records.losses`` has the reasons, each with its meaning and a
        remedy.  An exporter's own losses follow its name: ``record_file_buckets``.
        """
        return dict(self._pipeline.losses.published)

    def failures(self) -> dict[str, int]:
        """Return the exporters that raised and were disabled, by name."""
        return self._pipeline.exporters.failures

    def wake(self) -> None:
        """Let the drain work now; does not wait for it."""
        self._drain.wake()

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was recorded is exported; false when the timeout passed first.

        A step counts once its last bucket is there, on a device once the device has passed it.
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

    def _hear(self, anomalies: Sequence[AnomalyRecord]) -> None:
        error = self._alarm.hear(anomalies)
        with self._lock:
            if error is not None and self.state is State.RECORDING:
                self._to_raise, self.state = error, State.ALARMED

    def close(self, timeout_s: float | None = None) -> bool:
        """Export what is left, close the exporters and stop recording.

        Hooks stay registered and run on untraced.  Returns false, and logs what to do, when the
        deadline (``close_timeout_s`` by default) passed first.  A further call does nothing, or
        waits again where the deadline had passed.
        """
        with self._lock:
            first, self.state = self.state is not State.CLOSED, State.CLOSED
        open_tracers.discard(self)
        if first:
            self.models.end_steps()
            self.models.leave_sampling()
            if self._leave_channel is not None:
                self._leave_channel(self)
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

    def __exit__(self, *_: object) -> None:
        self.close()
