"""The record of an anomaly of one bucket."""

from __future__ import annotations

from ..records import AnomalyRecord
from .buckets import BucketSlot


def anomaly_of(
    slot: BucketSlot,
    kind: str,
    *,
    step: int,
    stage: str,
    time_ns: int,
    message: str,
    parameter: str | None = None,
) -> AnomalyRecord:
    """Return the record of an anomaly of one bucket, with a message that says where it is."""
    return AnomalyRecord(
        kind=kind,
        model=slot.model.name,
        hook=slot.model.hook,
        generation=slot.generation,
        step=step,
        bucket=slot.index,
        stage=stage,
        time_ns=time_ns,
        message=f"hook {slot.model.hook!r}, bucket {slot.index}, step {step}: {message}",
        parameter=parameter,
        rank=slot.model.rank,
    )
