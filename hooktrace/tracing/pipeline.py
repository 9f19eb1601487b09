"""What the drain does: entries of the ring become records, and batches of them go out.

ring --pop--> Assembler --steps, records--> batches --> RecentRecords (memory), FanOut (exporters)
LossLedger: what did not arrive
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from ..exporters.base import Exporter
from ..records import AnomalyRecord, Batch, RunInfo
from ..staging.ring import Ring
from .assembler import Assembler
from .export import FanOut, LossLedger
from .recent import RecentRecords

_ENTRIES_PER_PORTION = 128
_BREATH_S = 0.0002


class Pipeline:
    """The work of a drain; an exception in it is a defect of hooktrace, counted and survived.

    ``run_info`` is asked once, in the first cycle.  ``in_flight`` tells how many calls are
    unfinished at the end.  ``on_anomalies`` is told of anomalies before they go out.
    """

    def __init__(
        self,
        ring: Ring[object],
        recent: RecentRecords,
        exporters: Sequence[Exporter],
        *,
        run_info: Callable[[], RunInfo],
        in_flight: Callable[[], int],
        on_anomalies: Callable[[Sequence[AnomalyRecord]], None],
    ) -> None:
        self._ring = ring
        self._recent = recent
        self.losses = LossLedger(self._lost_elsewhere)
        self.exporters = FanOut(exporters, self.losses)
        self._assembler = Assembler(self.losses)
        self._run_info = run_info
        self._in_flight = in_flight
        self._on_anomalies = on_anomalies
        self.listeners: list[Callable[[Batch], None]] = []
        """Parts of hooktrace that have all batches, after the exporters."""
        self._run: RunInfo | None = None
        self._said: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def cycle(self, last: bool) -> None:
        """Empty the ring and send out what came of it; the last time, close the exporters."""
        if self._run is None and not last:  # while the group that the first hook ran on is there
            self._run = self._run_info()
        # What is pushed meanwhile belongs to the next cycle: a fast producer cannot hold one up.
        left = len(self._ring)
        while left > 0:
            left -= self._take(min(left, _ENTRIES_PER_PORTION))
            _give_way()
            if self._assembler.is_full:
                self._guarded(self._send)
                _give_way()
        if last:
            while len(self._ring):
                self._take(_ENTRIES_PER_PORTION)
                self._guarded(self._send)
            self._guarded(self._assembler.finish)
            self._guarded(self._count_unfinished)
        self._guarded(self._send)
        if last:
            self.exporters.close()
            self.losses.add("unfinished", len(self._ring))
        self._guarded(self.losses.publish)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do a piece of work; what it raises costs that piece only."""
        try:
            work()
        except Exception:
            self.losses.add_defect()

    def _lost_elsewhere(self) -> dict[str, int]:
        return {"ring_full": self._ring.dropped, **self.exporters.own_losses()}

    def _take(self, most: int) -> int:
        """Take entries, no more than make a batch; returns how many."""
        pop, assembler = self._ring.pop, self._assembler
        for taken in range(1, most + 1):
            try:
                entry = pop()
                if entry is not None:
                    assembler.add(entry)
            except Exception:
                self.losses.add_defect()
            if assembler.is_full:
                return taken
        return most

    def _count_unfinished(self) -> None:
        self.losses.add("unfinished", self._in_flight())

    def _send(self) -> None:
        steps, records = self._assembler.take()
        anomalies = [record for record in records if isinstance(record, AnomalyRecord)]
        if anomalies:
            self._on_anomalies(anomalies)
        losses = self.losses.totals()
        totals = losses, self.exporters.failures
        if not (steps or records or totals != self._said):
            return
        self._said = totals
        if self._run is None:
            self._run = self._run_info()
        batch = Batch(
            run=self._run,
            steps=tuple(steps),
            records=tuple(records),
            losses=losses,
            failures=self.exporters.all_failures(),
        )
        self._recent.add(batch)
        self.exporters.export(batch)
        for listener in self.listeners:
            self._guarded(partial(listener, batch))


def _give_way() -> None:
    """Sleep a moment, so that a training thread that waits for the interpreter lock gets it.

    At once, and not after the switch interval of 5 ms.
    """
    time.sleep(_BREATH_S)
