"""The drain: the work that makes records of the ring's entries and sends them out, and its thread.

start --> cycle, cycle, ... <--flush (waits)--   stop --> last cycle
ring --pop--> Assembler --steps, records--> batches --> RecentRecords (memory), FanOut (exporters)
ring, Assembler, FanOut --what did not arrive--> LossLedger --> batches, tracer.losses(), warnings
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..exporters.base import Exporter
from ..records import AnomalyRecord, Batch, CompletedStep, RunInfo
from ..records.losses import LOSSES
from ..staging.devices import relax_capture_mode
from .assembler import Assembler

if TYPE_CHECKING:
    from .tracer import Tracer

logger = logging.getLogger("hooktrace")


class LossLedger:
    """Counts losses in the drain thread; ``published`` may be read by any.

    ``elsewhere``: returns what others count for themselves, by reason.
    """

    def __init__(self, elsewhere: Callable[[], Mapping[str, int]]) -> None:
        self._counts: Counter[str] = Counter()
        self._elsewhere = elsewhere
        self._whys: dict[str, str] = {}
        self._told: set[str] = set()
        self.published: dict[str, int] = {}
        """What was lost by the last batch or drain: replaced as a whole, never changed."""

    def add(self, reason: str, count: int = 1, why: str = "") -> None:
        """Count a loss; of each reason the first ``why`` is told."""
        self._counts[reason] += count
        if why:
            self._whys.setdefault(reason, f": {why}")

    def add_defect(self) -> None:
        """Count the exception that is being handled, a defect of hooktrace; the first is logged."""
        self.add("internal_error")
        if "internal_error" not in self._told:
            self._told.add("internal_error")
            logger.exception(
                "hooktrace could not make records of some hook calls; training is not "
                "affected: please report this with the traceback"
            )

    def publish(self) -> None:
        """Let all threads see what was lost so far, by reason; warn of each reason once."""
        self.published = dict(+(self._counts + Counter(self._elsewhere())))
        for reason, count in self.published.items():
            # What an exporter counts after its own name, it tells itself.
            if reason in LOSSES and reason not in self._told:
                self._told.add(reason)
                logger.warning(
                    "%d record(s) lost (%s%s): %s; %s; further losses are only counted, in "
                    "hooktrace_records_lost_total and tracer.losses()",
                    count,
                    reason,
                    self._whys.get(reason, ""),
                    LOSSES[reason].sentence,
                    LOSSES[reason].fix,
                )


class FanOut:
    """The exporters of a tracer, in the drain thread."""

    def __init__(self, exporters: Sequence[Exporter]) -> None:
        names = [str(getattr(one, "name", None) or type(one).__name__) for one in exporters]
        self._all = list(zip(names, exporters, strict=True))
        self._working = list(self._all)
        self._lost: list[dict[str, int]] = [{} for _ in exporters]
        """What each gave up by itself; what was known before where that cannot be read."""
        self._failures: Counter[str] = Counter()
        self._not_exported = 0

    @property
    def failures(self) -> dict[str, int]:
        """How many exporters of each name raised, or 0."""
        return {name: self._failures[name] for name, _ in self._all}

    def losses(self) -> Counter[str]:
        """Return what disabled ones did not get, and what others gave up, by name and reason."""
        for i, (name, exporter) in enumerate(self._all):
            with suppress(Exception):  # as while its thread changes it
                lost = getattr(exporter, "lost", {}).items()
                self._lost[i] = {f"{name}_{kind}": int(count) for kind, count in lost}
        losses = Counter({"not_exported": self._not_exported})
        for own in self._lost:
            losses.update(own)
        return losses

    def export(self, batch: Batch) -> None:
        """Give a batch to every exporter that works."""
        for working in self._working:
            name, exporter = working
            try:
                exporter.export(batch)
            except BaseException as error:  # SystemExit too: it would end the drain in silence
                # Not by ``remove``, which asks exporters whether they are equal.
                self._working = [one for one in self._working if one is not working]
                so = (
                    "it is disabled for the rest of the run, training and the other exporters go "
                    "on; fix the cause and restart to have it back"
                )
                self._has_failed(name, "raised", error, so)
                with suppress(BaseException):  # it has failed, and that was said
                    exporter.close()
        disabled = len(self._all) - len(self._working)
        self._not_exported += disabled * sum(len(buckets) for _, buckets in batch.steps)

    def close(self) -> None:
        """Close the exporters that still work."""
        for name, exporter in self._working:
            try:
                exporter.close()
            except BaseException as error:
                so = "what it held last may be missing from its output"
                self._has_failed(name, "could not close:", error, so)

    def _has_failed(self, name: str, did: str, error: BaseException, so: str) -> None:
        """Count a failure, and log it; ``so``: what comes of it."""
        self._failures[name] += 1
        what = type(error).__name__
        with suppress(Exception):  # its own text may raise
            what += f": {error}"
        logger.warning("the %s exporter %s %s; %s", name, did, what, so)


class Drain(threading.Thread):
    """A daemon thread that works at once and every ``interval_s`` seconds until it is stopped.

    ``cycle``: called with whether it is the last time; may raise nothing.
    """

    def __init__(self, cycle: Callable[[bool], None], interval_s: float) -> None:
        super().__init__(name="hooktrace-drain", daemon=True)
        self._cycle = cycle
        self._interval_s = interval_s
        self._stopping = False
        self._ended = False
        self._requested = 1
        self._served = 0
        self._turn = threading.Condition()
        self._worker: threading.Thread | None = None

    def flush(self, timeout_s: float) -> bool:
        """Have everything pushed so far handled; false when that took longer than the timeout.

        On the drain's own thread, in an exporter or a log handler, it is false at once.
        """
        if threading.current_thread() is self:
            return False
        with self._turn:
            self._requested = ticket = self._requested + 1
            self._turn.notify_all()
            return self._turn.wait_for(lambda: self._ended or self._served >= ticket, timeout_s)

    def stop(self, timeout_s: float) -> bool:
        """Work once more and end; false when the deadline passed first."""
        with self._turn:
            self._stopping = True
            self._turn.notify_all()
        if self.ident is None:
            self.run()
        if threading.current_thread() is not self._worker:
            with self._turn:
                self._turn.wait_for(lambda: self._ended, timeout_s)
            if self._ended and self.is_alive():
                self.join(timeout_s)
        return self._ended

    def run(self) -> None:
        """Work until it is stopped, on the first thread that asks for it."""
        with self._turn:  # a signal handler may stop it while its thread starts
            if self._worker is not None:
                return
            self._worker = threading.current_thread()
        relax_capture_mode()
        try:
            stopping = False
            while not stopping:
                with self._turn:
                    self._turn.wait_for(
                        lambda: self._stopping or self._requested > self._served, self._interval_s
                    )
                    stopping, ticket = self._stopping, self._requested
                self._cycle(stopping)
                with self._turn:
                    self._served = ticket
                    self._turn.notify_all()
        finally:
            with self._turn:
                self._ended = True
                self._turn.notify_all()


R = TypeVar("R")

_KEPT_OF_A_KIND = 1000


class RecentRecords:
    """Keeps the last steps with their buckets, and the last records of each other kind.

    The oldest step goes when ``max_steps`` or ``max_buckets`` is passed.  Any thread may ask.
    """

    def __init__(self, max_steps: int, max_buckets: int) -> None:
        self._max_steps = max_steps
        self._max_buckets = max_buckets
        self._steps: deque[CompletedStep] = deque()
        self._bucket_count = 0
        self._records = defaultdict[type, deque[Any]](partial(deque, maxlen=_KEPT_OF_A_KIND))
        self._lock = threading.Lock()

    def add(self, batch: Batch) -> None:
        """Keep a batch, and let go of what no longer fits."""
        with self._lock:
            for record in batch.records:
                self._records[type(record)].append(record)
            for completed in batch.steps:
                self._steps.append(completed)
                self._bucket_count += len(completed[1])
            while len(self._steps) > self._max_steps or (
                self._bucket_count > self._max_buckets and len(self._steps) > 1
            ):
                self._bucket_count -= len(self._steps.popleft()[1])

    def steps(self) -> list[CompletedStep]:
        """Return the kept steps with their buckets, oldest first."""
        with self._lock:
            return list(self._steps)

    def of(self, kind: type[R]) -> list[R]:
        """Return the kept records of a kind that is no step or bucket, oldest first."""
        with self._lock:
            return list(self._records.get(kind, ()))


_ENTRIES_PER_PORTION = 128
_BREATH_S = 0.0002
"""Between portions: a training thread gets the interpreter lock then, and waits for no 5 ms."""


class Pipeline:
    """The work of a drain; an exception in it is a defect of hooktrace, counted and survived."""

    def __init__(self, tracer: Tracer, exporters: Sequence[Exporter]) -> None:
        self._tracer = tracer
        self._ring = ring = tracer.ring
        self.exporters = FanOut(exporters)
        self.losses = LossLedger(lambda: {"ring_full": ring.dropped, **self.exporters.losses()})
        self._assembler = Assembler(self.losses)
        self._run: RunInfo | None = None
        self._said: tuple[dict[str, int], dict[str, int]] = ({}, self.exporters.failures)

    def cycle(self, last: bool) -> None:
        """Empty the ring and send out what came of it; the last time, close the exporters."""
        if self._run is None and not last:  # while the group that the first hook ran on is there
            self._run = self._tracer.run_info()
        # Steps that have ended are closed before the ring is emptied, since by then all that was
        # found of them is in it; once more, for those that were in the ring themselves.
        for _ in range(2):
            self._guarded(self._assembler.close_ended)
            self._take()
        self._send_completed()
        if last:
            self._take()
            self._guarded(self._assembler.finish)
            self._send_completed()
            self._guarded(self.exporters.close)
            self.losses.add("unfinished", self._ring.filled)
        self._guarded(self.losses.publish)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do a piece of work; what it raises costs that piece only."""
        try:
            work()
        except Exception:
            self.losses.add_defect()

    def _take(self) -> None:
        """Take the entries that are there: a fast producer of more cannot hold a cycle up."""
        pop, assembler = self._ring.pop, self._assembler
        for taken in range(1, len(self._ring) + 1):
            try:
                entry = pop()
                if entry is not None:
                    assembler.add(entry)
            except Exception:
                self.losses.add_defect()
            if taken % _ENTRIES_PER_PORTION == 0:
                time.sleep(_BREATH_S)

    def _send_completed(self) -> None:
        """Send out the steps that are complete, and all other records, a batch at a time."""
        while self._assembler.complete_passed():
            self._guarded(self._send)
            time.sleep(_BREATH_S)
        self._guarded(self._send)

    def _send(self) -> None:
        steps, records = self._assembler.take()
        self._tracer.hear_of([one for one in records if isinstance(one, AnomalyRecord)])
        self._guarded(self.losses.publish)  # it logs: what is taken goes out all the same
        totals = losses, failures = self.losses.published, self.exporters.failures
        if not (steps or records or totals != self._said):
            return
        self._said = totals
        if self._run is None:
            self._run = self._tracer.run_info()
        batch = Batch(
            run=self._run,
            steps=tuple(steps),
            records=tuple(records),
            losses=losses,
            failures=failures,
        )
        for listener in self._tracer.listeners:
            self._guarded(partial(listener, batch))
        self.exporters.export(batch)
