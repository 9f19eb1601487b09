"""NaN and inf that a loss scaler looks for: it leaves such a step out, and halves its scale.

    what a look found --of a scaled loss, not too often in a row?--> nothing, else its anomalies

They are an anomaly where the scale cannot be the reason: float16 spans 40 powers of two, so that
after as many halvings in a row any scale has come down to what fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..records import AnomalyRecord
from ..records.last_used import LastUsed

_HALVINGS = 40
_NONFINITE = {"nonfinite_gradient", "nonfinite_result", "nonfinite_average"}


@dataclass(slots=True)
class _Run:
    """Steps of one model with NaN or inf, one after another as far as they were looked at."""

    length: int = 0
    last: int = -1
    looked: int = -1


class SkippedSteps:
    """Leaves out the anomalies of steps that a loss scaler leaves out."""

    def __init__(self) -> None:
        self._runs: LastUsed[str, _Run] = LastUsed(_Run)

    def others(
        self, anomalies: Iterable[AnomalyRecord], *, model: str, step: int, scaled: bool
    ) -> Iterator[AnomalyRecord]:
        """Yield what a look at a step found, without what the scaler looks for itself."""
        run = self._runs.of(model)
        if run.looked not in (step, run.last):
            run.length = 0  # the step before was looked at, and all in it was finite
        run.looked = step
        for anomaly in anomalies:
            if anomaly.kind in _NONFINITE:
                run.length += step != run.last
                run.last = step
                if scaled and run.length <= _HALVINGS:
                    continue
            yield anomaly
