"""The ledger of what was lost: counts by reason (``records/losses.py``), and one warning for each.

drain, assembler, exporters --add--> LossLedger --totals--> batches, tracer.losses(), warnings
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

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
        own = self._counts
        elsewhere = {reason: own[reason] + n for reason, n in self._elsewhere().items()}
        return {reason: count for reason, count in {**own, **elsewhere}.items() if count}

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
                    LOSSES[reason].remedy,
                )
