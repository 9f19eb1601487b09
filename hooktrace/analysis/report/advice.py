"""The report's last section: what ``hooktrace advise`` says, of a run that was calibrated.

Timeline --is there a calibration?--> whatif.ask, whatif.advise --> Advised, or None
"""

from __future__ import annotations

from typing import Any

from ...records.errors import UsageError
from ..timeline import Timeline
from ..whatif.advise import Advised, advise
from ..whatif.answer import LIMITS, prediction_fields

_ARITHMETIC = "docs/what-if.md has the arithmetic"
"""In the repository: how predictions come about, and how good they are."""


def about_advice(advised: Advised) -> str:
    """Return the line below the advice."""
    code = "hooktrace advise has the code to paste, " if advised.lines else ""
    return f"{LIMITS} {code}{_ARITHMETIC}."


def advice_of(timeline: Timeline, model: str) -> Advised | None:
    """Return the advice; ``None`` of a run without a calibration, or of one that cannot be asked.

    That is one on a device, or with a hook of which nobody knows what it sends.
    """
    computes = (one for track in timeline.tracks for one in track.records.computes)
    if not any(one.model == model for one in computes):
        return None
    from ..whatif.ask import ask, everything, read_source  # which reads steps as this package does

    try:
        source = read_source(timeline, model)
        return advise(ask(source, everything(source)))
    except UsageError:
        return None


def advice_fields(advised: Advised) -> list[dict[str, Any]]:
    """Return the advice for programs: predictions, and their gains in ms; empty: leave it."""
    return [
        {
            **prediction_fields(advised.answer, one.prediction),
            "gain_ms": one.gain_ms,
            "gain_low_ms": one.low_ms,
            "gain_high_ms": one.high_ms,
        }
        for one in advised.lines
    ]
