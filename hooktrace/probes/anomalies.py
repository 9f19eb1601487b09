"""The record of an anomaly of one bucket: what was seen; the table of anomalies says what to do."""

from __future__ import annotations

from ..records import AnomalyRecord
from ..records.anomalies import anomaly_kind
from ..staging.slots import BucketSlot


def anomaly_of(
    slot: BucketSlot,
    kind: str,
    what: str,
    *,
    step: int,
    time_ns: int,
    stage: str = "hook",
    parameter: str | None = None,
) -> AnomalyRecord:
    """Return the record of an anomaly, whose message says where, ``what``, and the kind's fix.

    ``kind``: of ``records.anomalies``.  ``time_ns``: host ns.
    """
    place = f"bucket {slot.index}" if slot.unit is None else f"unit {slot.unit}"
    said = anomaly_kind(kind).said(sharded=slot.unit is not None)
    where = f"hook {slot.model.hook!r}, {place}, step {step}"
    return AnomalyRecord(
        kind=kind,
        model=slot.model.name,
        hook=slot.model.hook,
        rebuild=slot.rebuild,
        step=step,
        bucket=slot.index,
        stage=stage,
        time_ns=time_ns,
        message=f"{where}: {what}; {said.fix}",
        parameter=parameter,
        rank=slot.model.rank,
    )
