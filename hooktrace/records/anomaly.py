"""What went wrong in a hook."""

from __future__ import annotations

from .quantities import Count, Ns, Record


class AnomalyRecord(Record, frozen=True, kw_only=True, tag="anomaly", rename={"kind": "name"}):
    """Something that went wrong in a hook: ``message`` names it and ends in what to do.

    ``kind``: one of ``anomalies.ANOMALIES``, called ``name`` in files, whose ``kind`` is anomaly.
    ``rank``: of the process that saw it.  ``parameter``: the one that it is about, if it is about
    one.  ``bucket`` is -1 where it is about the whole model.
    """

    kind: str
    model: str
    hook: str
    generation: Count
    step: Count
    bucket: Count
    stage: str
    time_ns: Ns
    message: str
    parameter: str | None = None
    rank: Count | None = None
