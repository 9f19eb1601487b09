"""The drain: one daemon thread that turns stamps into records and feeds the exporters.

    ring --pop--> Assembler --steps--> RecentRecords (memory) and exporters, a few steps at a time

It shares the interpreter lock with the training thread, so it works in small portions and sleeps
between them.  Everything that can fail fails here: an exporter that raises is closed, disabled,
logged once and counted, and the others go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ..capture.calls import BucketCall
from ..capture.ring import Ring
from ..exporters.base import Exporter
from ..probes import ProbeResult, WireSample
from ..records import AnomalyRecord, Batch, ClockRecord, CompletedStep, LayoutRecord, RunInfo
from .assembler import Assembler
from .recent import RecentRecords

__all__ = ["Drain", "Entry"]

logger = logging.getLogger("hooktrace")

_CALLS_PER_PORTION = 16
_BUCKETS_PER_BATCH = 32
_BREATH_S = 0.0002
"""Between portions the drain sleeps, so that a training thread that waits for the interpreter lock
gets it at once instead of after the switch interval of 5 ms."""


Entry = BucketCall | LayoutRecord | AnomalyRecord | ClockRecord | ProbeResult | WireSample
"""What may be in the ring."""


class Drain:
    """Empties a ring every ``interval_s`` seconds until it is stopped.

    ``run_info`` is called once, when the thread starts.  ``in_flight`` tells how many calls
    are unfinished when the drain ends.
    """

    def __init__(
        self,
        ring: Ring[Entry],
        assembler: Assembler,
        recent: RecentRecords,
        exporters: Sequence[Exporter],
        *,
        run_info: Callable[[], RunInfo],
        in_flight: Callable[[], int],
        on_anomalies: Callable[[Sequence[AnomalyRecord]], None],
        interval_s: float,
    ) -> None:
        self._ring = ring
        self._assembler = assembler
        self._recent = recent
        self._exporters = list(exporters)
        self._all_exporters = tuple(exporters)
        self._run_info = run_info
        self._in_flight = in_flight
        self._on_anomalies = on_anomalies
        self._interval_s = interval_s
        self._run: RunInfo | None = None
        self._lost: Counter[str] = Counter()
        self._clocks: list[ClockRecord] = []
        self._disabled = 0
        self._failures: dict[str, int] = {}
        self._reported: set[str] = set()
        self._sent: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._published: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._stopping = False
        self._ended = False
        self._woken = False
        self._requested = 0
        self._served = 0
        self._turn = threading.Condition()
        self._thread = threading.Thread(target=self._main, name="hooktrace-drain", daemon=True)

    def start(self) -> None:
        """Start the thread; raises ``RuntimeError`` where the system gives none."""
        self._thread.start()

    def wake(self) -> None:
        """Let the thread work now and not at its next interval; does not wait."""
        with self._turn:
            self._woken = True
            self._turn.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Have everything pushed so far exported; false when that took longer than the timeout.

        On the drain's own thread, in an exporter or a log handler, it is false at once.
        """
        if threading.current_thread() is self._thread:
            return False
        with self._turn:
            self._requested += 1
            ticket = self._requested
            self._turn.notify_all()
            return self._turn.wait_for(lambda: self._ended or self._served >= ticket, timeout_s)

    def stop(self, timeout_s: float) -> bool:
        """Drain once more, close the exporters and end; false when the deadline passed first.

        Without a running thread this happens at once, on the caller's.
        """
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        if self._thread.ident is None:
            if not self._ended:
                self._main()
        elif threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return self._ended

    @property
    def losses(self) -> dict[str, int]:
        """Everything lost until the last drain, by reason."""
        return dict(self._published[0])

    @property
    def failures(self) -> dict[str, int]:
        """Exporters that raised until the last drain, by name."""
        return dict(self._published[1])

    def _main(self) -> None:
        try:
            if self._thread.ident is not None:
                # Now, while the process group that the first hook ran on is there.
                self._run = self._run_info()
            stopping = False
            while not stopping:
                with self._turn:
                    self._turn.wait_for(self._wanted, self._interval_s)
                    stopping, ticket = self._stopping, self._requested
                    self._woken = False
                self._cycle(ending=stopping)
                with self._turn:
                    self._served = ticket
                    self._turn.notify_all()
            for exporter in self._exporters:
                self._close(exporter)
            self._lost["unfinished"] += len(self._ring)
            self._publish()
        finally:
            with self._turn:
                self._ended = True
                self._turn.notify_all()

    def _wanted(self) -> bool:
        return self._stopping or self._woken or self._requested > self._served

    def _cycle(self, *, ending: bool) -> None:
        layouts: list[LayoutRecord] = []
        # What is pushed meanwhile belongs to the next cycle: a fast producer cannot hold one up.
        for position in range(1, len(self._ring) + 1):
            self._guarded(self._take, layouts)
            if position % _CALLS_PER_PORTION == 0:
                time.sleep(_BREATH_S)
        if ending:
            while len(self._ring):
                self._guarded(self._take, layouts)
            self._guarded(self._assembler.finish)
            self._guarded(self._count_unfinished)
        self._guarded(self._deliver, layouts)
        self._publish()

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        """Do a piece of work; a defect of hooktrace itself loses that piece, and is counted."""
        try:
            work(*arguments)
        except Exception:
            self._lost["internal_error"] += 1
            if "internal_error" not in self._reported:
                self._reported.add("internal_error")
                logger.exception(
                    "hooktrace could not make records of some hook calls; training is not "
                    "affected: please report this with the traceback"
                )

    def _take(self, layouts: list[LayoutRecord]) -> None:
        entry = self._ring.pop()
        if isinstance(entry, LayoutRecord):
            layouts.append(entry)
        elif isinstance(entry, AnomalyRecord):
            self._assembler.report(entry)
        elif isinstance(entry, ClockRecord):
            self._clocks.append(entry)
        elif isinstance(entry, ProbeResult):
            self._assembler.add_outcome(entry)
        elif isinstance(entry, WireSample):
            self._assembler.add_sample(entry)
        elif entry is not None:
            self._assembler.add(entry)

    def _count_unfinished(self) -> None:
        self._lost["unfinished"] += self._in_flight()

    def _totals(self) -> tuple[dict[str, int], dict[str, int]]:
        losses = self._lost + self._assembler.lost
        for exporter in self._all_exporters:
            for kind, count in getattr(exporter, "lost", {}).items():
                losses[f"{exporter.name}_{kind}"] += count
        losses["ring_full"] += self._ring.dropped
        return {reason: count for reason, count in losses.items() if count}, dict(self._failures)

    def _publish(self) -> None:
        """Let other threads see the totals: as a whole, never while they change."""
        self._published = self._totals()
        self._report_losses()

    def _deliver(self, layouts: list[LayoutRecord]) -> None:
        steps = self._assembler.take()
        anomalies, self._assembler.anomalies = self._assembler.anomalies, []
        skews, self._assembler.skews = self._assembler.skews, []
        clocks, self._clocks = self._clocks, []
        if anomalies:
            self._on_anomalies(anomalies)
        totals = self._totals()
        if not (layouts or steps or anomalies or skews or clocks or totals != self._sent):
            return
        self._sent = totals
        if self._run is None:
            self._run = self._run_info()
        anomalies = [replace(a, rank=self._run.rank) for a in anomalies]
        first = True
        while first or steps:
            portion = _take_portion(steps)
            # An exporter that keeps or drops a step's detail has to know what went wrong in it.
            now = anomalies if not steps else _of_steps(anomalies, portion)
            anomalies = [a for a in anomalies if a not in now]
            losses, failures = self._totals()
            batch = Batch(
                run=self._run,
                steps=tuple(portion),
                records=(*layouts, *clocks, *skews, *now) if first else tuple(now),
                losses=losses,
                failures=failures,
            )
            self._recent.add(batch)
            if self._disabled:
                self._lost["not_exported"] += self._disabled * _bucket_count(batch)
            for exporter in list(self._exporters):
                self._export(exporter, batch)
            first = False
            time.sleep(_BREATH_S)

    def _export(self, exporter: Exporter, batch: Batch) -> None:
        try:
            exporter.export(batch)
        except BaseException as error:  # SystemExit too: it would end the drain in silence
            self._exporters.remove(exporter)
            self._disabled += 1
            self._lost["not_exported"] += _bucket_count(batch)
            self._failures[exporter.name] = self._failures.get(exporter.name, 0) + 1
            logger.warning(
                "the %s exporter raised %s: %s; it is disabled for the rest of the run, training "
                "and the other exporters go on; fix the cause and restart to have it back",
                exporter.name,
                type(error).__name__,
                error,
            )
            self._close(exporter)

    def _close(self, exporter: Exporter) -> None:
        try:
            exporter.close()
        except BaseException as error:
            if exporter in self._exporters:
                self._failures[exporter.name] = self._failures.get(exporter.name, 0) + 1
                logger.warning(
                    "the %s exporter could not close: %s: %s; what it held last may be missing "
                    "from its output",
                    exporter.name,
                    type(error).__name__,
                    error,
                )

    def _report_losses(self) -> None:
        for reason, count in self._published[0].items():
            if reason not in self._reported and reason in _REMEDIES:
                self._reported.add(reason)
                logger.warning(
                    "%d record(s) lost (%s): %s; further losses are only counted, in "
                    "hooktrace_records_lost_total and tracer.losses()",
                    count,
                    reason,
                    _REMEDIES[reason],
                )


_REMEDIES = {
    "ring_full": "the drain did not keep up; pass Tracer(ring_capacity=...) a larger number or "
    "use fewer exporters",
    "late": "a bucket completed after a later step had; look for a hook whose future "
    "does not belong to its bucket",
    "unfinished": "their futures had not completed when the tracer was closed; close it after the "
    "last backward pass has returned",
    "not_exported": "an exporter was disabled; its own message says why",
    "device_unresolved": "the device had not passed their events; synchronise it before close()",
}


def _bucket_count(batch: Batch) -> int:
    return sum(len(buckets) for _, buckets in batch.steps)


def _of_steps(
    anomalies: list[AnomalyRecord], steps: Sequence[CompletedStep]
) -> list[AnomalyRecord]:
    keys = {(step.model, step.step) for step, _ in steps} if anomalies else set()
    return [a for a in anomalies if (a.model, a.step) in keys]


def _take_portion(steps: list[CompletedStep]) -> list[CompletedStep]:
    portion: list[CompletedStep] = []
    buckets = 0
    while steps and (not portion or buckets + len(steps[0][1]) <= _BUCKETS_PER_BATCH):
        portion.append(steps.pop(0))
        buckets += len(portion[-1][1])
    return portion
