"""Records on their way to the exporters, and the ledger of what was lost.

Batch --export--> each exporter that still works        failures, buckets not exported
drain, assembler, exporters --add--> LossLedger --totals--> batches, tracer.losses(), warnings
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ..exporters.base import Exporter
from ..records import Batch
from ..records.losses import LOSSES

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
        """The totals at the end of the last drain: replaced as a whole, never changed."""

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

    def totals(self) -> dict[str, int]:
        """Return everything lost so far, by reason."""
        return dict(+(self._counts + Counter(self._elsewhere())))

    def publish(self) -> None:
        """Let other threads see the totals, and warn of each reason once."""
        self.published = self.totals()
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


class _Given:
    """An exporter, which may be anybody's."""

    def __init__(self, exporter: Exporter) -> None:
        self.export, self.close = exporter.export, exporter.close
        self.name = str(getattr(exporter, "name", None) or type(exporter).__name__)
        self._exporter = exporter
        self._lost: dict[str, int] = {}

    def lost(self) -> dict[str, int]:
        """Return what it gave up by itself; what was known before where that cannot be read."""
        with suppress(Exception):  # as while its thread changes it
            lost = getattr(self._exporter, "lost", {})
            self._lost = {str(kind): int(count) for kind, count in lost.items()}
        return self._lost


class FanOut:
    """The exporters of a tracer, in the drain thread; ``losses`` counts what they do not get."""

    def __init__(self, exporters: Sequence[Exporter], losses: LossLedger) -> None:
        self._all = tuple([_Given(exporter) for exporter in exporters])
        self._working = list(self._all)
        self._losses = losses
        self._failures: Counter[str] = Counter()

    @property
    def failures(self) -> dict[str, int]:
        """How many exporters of each name raised, or 0."""
        return {exporter.name: self._failures[exporter.name] for exporter in self._all}

    def own_losses(self) -> Counter[str]:
        """Return what exporters gave up by themselves, by their name and reason."""
        losses: Counter[str] = Counter()
        for exporter in self._all:
            for kind, count in exporter.lost().items():
                losses[f"{exporter.name}_{kind}"] += count
        return losses

    def export(self, batch: Batch) -> None:
        """Give a batch to every exporter that works."""
        for exporter in list(self._working):
            try:
                exporter.export(batch)
            except BaseException as error:  # SystemExit too: it would end the drain in silence
                self._working.remove(exporter)
                self._failures[exporter.name] += 1
                logger.warning(
                    "the %s exporter raised %s: %s; it is disabled for the rest of the run, "
                    "training and the other exporters go on; fix the cause and restart to have it "
                    "back",
                    exporter.name,
                    type(error).__name__,
                    error,
                )
                with suppress(BaseException):  # it has failed, and that was said
                    exporter.close()
        disabled = len(self._all) - len(self._working)
        if disabled:
            buckets = sum(len(buckets) for _, buckets in batch.steps)
            self._losses.add("not_exported", disabled * buckets)

    def close(self) -> None:
        """Close the exporters that still work."""
        for exporter in self._working:
            try:
                exporter.close()
            except BaseException as error:
                self._failures[exporter.name] += 1
                logger.warning(
                    "the %s exporter could not close: %s: %s; what it held last may be missing "
                    "from its output",
                    exporter.name,
                    type(error).__name__,
                    error,
                )


is_measured = False
"""Whether hooktrace has started the job to measure it: nothing is exported that the script asks.

Its runs, ports and trackers hear nothing of steps that are only a trial.
"""


def redirected(exporters: Sequence[Exporter]) -> tuple[Exporter, ...]:
    """Return what a tracer exports to: what it was given, but in such a job.

    There it is what hooktrace measures the job with: its class sets ``measures_the_job``.
    """
    if not is_measured:
        return tuple(exporters)
    own = [one for one in exporters if getattr(type(one), "measures_the_job", False)]
    for exporter in exporters:
        if exporter not in own:
            try:
                exporter.close()
            except Exception:  # of somebody else's: the job goes on
                logger.exception("an exporter that is not used could not be closed")
    return tuple(own)
