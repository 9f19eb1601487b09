"""Marks steps that waited for their communication far longer than they usually do.

    StepRecord --of_step--> AnomalyRecord of kind stall, of this rank

One rank sees that it waited and for how long, not for whom: the report puts the ranks together.
"""

from __future__ import annotations

from ..capture.buckets import BucketSlot
from ..records import AnomalyRecord, StepRecord
from ..records.anomalies import anomaly_kind
from ..records.last_used import LastUsed
from ..records.running_median import RunningMedian
from ..records.stall import ENOUGH_STEPS, is_stall
from ..records.units import ms

_LAST = 64


class StallWatch:
    """Knows what is usual of each model: exposed time and period of its last steps."""

    def __init__(self) -> None:
        self._usual: LastUsed[str, tuple[RunningMedian, RunningMedian]] = LastUsed(
            lambda: (RunningMedian(_LAST, ENOUGH_STEPS), RunningMedian(_LAST, ENOUGH_STEPS - 1))
        )

    def of_step(self, slot: BucketSlot, step: StepRecord) -> AnomalyRecord | None:
        """Return the mark of a step that stalled; ``slot``: of one of its buckets."""
        if not step.settled or step.exposed_ns is None:
            return None
        exposed, period = self._usual.of(step.model)
        usual_exposed, usual_period = exposed.median, period.median
        if step.counts:
            exposed.add(step.exposed_ns)
            if step.previous_period_ns is not None:
                period.add(step.previous_period_ns)
        if usual_exposed is None or usual_period is None:
            return None
        if not is_stall(step.exposed_ns, usual_exposed, usual_period):
            return None
        probed = "; hooktrace probed the step, which may be a part of it" if step.probed else ""
        return AnomalyRecord(
            kind="stall",
            model=step.model,
            hook=step.hook,
            generation=step.generation,
            step=step.step,
            bucket=-1,
            stage="exposed",
            time_ns=step.last_ready_ns,
            message=f"hook {step.hook!r}, step {step.step}: {ms(step.exposed_ns)} of exposed "
            f"communication, where {ms(usual_exposed)} is usual{probed}; this rank waited, and "
            f"cannot tell for whom: {anomaly_kind('stall').remedy}",
            rank=slot.model.rank,
        )
