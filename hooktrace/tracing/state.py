"""Whether hooks record, and what anomalies do about it: nothing, warn, or end the next backward.

drain --anomalies--> Alarm.hear: logged; to be raised?    the next hook call --> AnomalyError
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Sequence

from ..records import AnomalyRecord
from ..records.errors import AnomalyError
from .options import OnAnomaly

logger = logging.getLogger("hooktrace")


class State(enum.Enum):
    """The state of a tracer: the one attribute of it that every hook call reads.

    ::

        OFF <--recording = False, True--> RECORDING <--an anomaly, the next hook call--> ALARMED
                                   any of these --close()--> CLOSED
    """

    RECORDING = enum.auto()
    """Hooks record their calls."""
    OFF = enum.auto()
    """Hooks run untraced: it was switched off, or the system gave no thread."""
    ALARMED = enum.auto()
    """The next hook call raises ``AnomalyError``, and hooks record again."""
    CLOSED = enum.auto()
    """Hooks run untraced, for good."""


RECORDING, ALARMED = State.RECORDING, State.ALARMED
"""The states that hooks compare with, without the look-up in the class."""


class Alarm:
    """Follows ``on_anomaly``."""

    def __init__(self, on_anomaly: OnAnomaly) -> None:
        self._on_anomaly = on_anomaly

    def hear(self, anomalies: Sequence[AnomalyRecord]) -> AnomalyError | None:
        """Log anomalies, if that is wanted, and return what is to be raised of them."""
        if self._on_anomaly == "record":
            return None
        for anomaly in anomalies:
            logger.warning("%s: %s", anomaly.kind, anomaly.message)
        if self._on_anomaly == "warn":
            return None
        # A hook's own exception was raised already; a stall is over, and no fault of the hook.
        unheard = (a for a in anomalies if a.kind not in {"hook_exception", "stall"})
        return next((AnomalyError(a.message) for a in unheard), None)
