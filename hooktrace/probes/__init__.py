"""Probes: on agreed steps one bucket's result is compared with a lossless average.

    every hook call     step == model.probe_step?            one comparison, else nothing
      agreement.py      all ranks trace this model: from which step on do they probe it?
      schedule.py       which steps, and which bucket of them
      probe.py          clone -> lossless average on a group of hooktrace's own --+
                        the hook itself ------------------------------------------+--> compare.py
                                                                                  |
                        DDP gets the hook's result when both are there <----------+
    drain               findings.py: numbers -> ErrorRecord and anomalies

The only collectives that hooktrace adds are here: on a probed step, for the probed bucket, an
all-reduce of its size and an all-gather of 16 kB, which also carries a checksum of the result that
was probed before: whether the replicas still agree is known one probe later.  Nothing waits: the
hook's future is passed on when the reference has arrived too.  The result is not touched.
"""

from __future__ import annotations

from .findings import anomalies, error_record
from .model import OFF, ModelProbes
from .probe import Outcome, Probe

__all__ = ["OFF", "ModelProbes", "Outcome", "Probe", "anomalies", "error_record"]
