"""Whether hooks record: the one attribute of a tracer that every hook call reads."""

from __future__ import annotations

import enum


class State(enum.Enum):
    """The state of a tracer.

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


RECORDING = State.RECORDING
"""The state that hooks compare with, without the look-up in the class."""
