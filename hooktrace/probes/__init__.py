"""Probes: on agreed steps one bucket's result is compared with a lossless average.

    every hook call     step >= model.sample_step?           one comparison, else nothing
      sampling.py       what is wanted of this step:
      agreement.py      all ranks trace this model: from which step on do they probe it?
      schedule.py       which steps, and which bucket of them
      probe.py          clone -> lossless average on a group of hooktrace's own --+
                        the hook itself ------------------------------------------+--> compare.py
                                                                                  |
                        DDP gets the hook's result when both are there <----------+
      local.py          the same without other ranks: compress -> decompress against the gradients
      wire.py           which collectives an opaque hook issues
      watch.py          debug mode: finite values, memory held or changed, on every step
    drain               findings.py: numbers -> ErrorRecord and anomalies

The only collectives that hooktrace adds are here: on a probed step, for the probed bucket, an
all-reduce of its size and an all-gather of 16 kB, which also carries when this rank had the bucket
ready, and a checksum of the result that was probed before: whether the replicas still agree is
known one probe later.  Nothing waits: the hook's future is passed on when the reference has arrived
too.  The result is not touched.
"""

from __future__ import annotations

from .findings import Diagnosis, error_record, skew_record
from .local import LocalProbes
from .model import ModelProbes
from .probe import Outcome
from .sampling import Sampled, Sampling
from .schedule import Occasion
from .watch import Watch
from .wire import (
    CallWindow,
    FlightRecorder,
    WireSample,
    WireSampler,
    attribute,
)

__all__ = [
    "CallWindow",
    "Diagnosis",
    "FlightRecorder",
    "LocalProbes",
    "ModelProbes",
    "Occasion",
    "Outcome",
    "Sampled",
    "Sampling",
    "Watch",
    "WireSample",
    "WireSampler",
    "attribute",
    "error_record",
    "skew_record",
]
