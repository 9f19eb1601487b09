"""What is wrong with a bucket, before it is a record: what was seen; the table says what to do.

AnomalyDraft(kind, what) + records.anomalies' remedy --record(where, when)--> AnomalyRecord
"""

from __future__ import annotations

from typing import NamedTuple

from ..capture.buckets import BucketSlot
from ..records import AnomalyRecord
from ..records.anomalies import anomaly_kind


class AnomalyDraft(NamedTuple):
    """What is wrong with one bucket of one step.  ``kind``: of ``records.anomalies``."""

    kind: str
    what: str
    stage: str = "hook"
    parameter: str | None = None

    def record(self, slot: BucketSlot, step: int, time_ns: int) -> AnomalyRecord:
        """Return the record, whose message ends in the kind's remedy.  ``time_ns``: host ns."""
        where = f"hook {slot.model.hook!r}, bucket {slot.index}, step {step}"
        return AnomalyRecord(
            kind=self.kind,
            model=slot.model.name,
            hook=slot.model.hook,
            generation=slot.generation,
            step=step,
            bucket=slot.index,
            stage=self.stage,
            time_ns=time_ns,
            message=f"{where}: {self.what}; {anomaly_kind(self.kind).remedy}",
            parameter=self.parameter,
            rank=slot.model.rank,
        )


def nonfinite_gradient(name: str) -> AnomalyDraft:
    """Return what is to be said of a parameter whose gradient came in with NaN or inf."""
    what = f"the gradient of {name} had NaN or inf before the hook"
    return AnomalyDraft("nonfinite_gradient", what, stage="ready", parameter=name)
