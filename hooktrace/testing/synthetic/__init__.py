"""Records of a made-up job, of which one knows what a report must find; no torch, always the same.

    SyntheticJob --simulate--> SyntheticStep --completed(rank)--> records --write_job--> files
    (job.py)     (simulation.py)  when each bucket was where                  (files.py)

Who wants times of his own writes them down: ``SyntheticJob().step(1, [Moments(...), ...])``.
"""

from __future__ import annotations

from .files import write_job
from .job import Moments, SyntheticJob
from .simulation import SyntheticStep, simulate

__all__ = ["Moments", "SyntheticJob", "SyntheticStep", "simulate", "write_job"]
