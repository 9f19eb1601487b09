"""What a tracer does about anomalies beyond recording them: warn, or raise in the next backward.

drain --anomalies--> Alarm.hear: logged; to be raised?    hook call --take--> AnomalyError
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, get_args

from ..records import AnomalyRecord
from ..records.errors import AnomalyError

logger = logging.getLogger("hooktrace")

OnAnomaly = Literal["record", "warn", "raise"]


class Alarm:
    """Follows ``on_anomaly``; raises ``ValueError`` where that is not one of ``OnAnomaly``."""

    def __init__(self, on_anomaly: OnAnomaly) -> None:
        if on_anomaly not in get_args(OnAnomaly):
            raise ValueError(
                f"on_anomaly={on_anomaly!r} is not known; pass {', '.join(get_args(OnAnomaly))}"
            )
        self._on_anomaly = on_anomaly

    def hear(self, anomalies: Sequence[AnomalyRecord]) -> AnomalyError | None:
        """Log anomalies, if that is wanted, and return what is to be raised of them."""
        if self._on_anomaly == "record":
            return None
        for anomaly in anomalies:
            logger.warning("%s: %s", anomaly.kind, anomaly.message)
        if self._on_anomaly == "warn":
            return None
        # A hook's own exception was raised already.
        unheard = (a for a in anomalies if a.kind != "hook_exception")
        return next((AnomalyError(a.message) for a in unheard), None)
