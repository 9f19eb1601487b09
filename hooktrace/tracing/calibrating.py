"""How a model of a tracer is calibrated: with which hooks, from which step on.

Tracer(calibrate=True), ``hooktrace ctl calibrate`` --> Calibration, a part of the model's sampler

The hooks are in a package above this one, so they are looked up by name: all that is known of them
here is ``probes.trial.Candidate``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from ..probes.calibration import Calibration

SETTLED_AFTER = 20
"""Steps of a model before its calibration: buckets are rebuilt by then, memory is allocated."""

_CANDIDATES = "hooktrace.hooks.candidates"


class KeepsDetail(Protocol):
    """What a calibration needs of a tracer."""

    def keep_detail(self, model: str, first: int, steps: int) -> bool:
        """Keep so many steps of a model in detail."""


def calibration_of(tracer: KeepsDetail, model: str, first: int) -> Calibration:
    """Return the calibration of a model from a step on, whose steps are kept in detail."""
    candidates = import_module(_CANDIDATES).candidates()
    for candidate in candidates:
        candidate.load()  # not in a step that is timed
    calibration = Calibration(candidates, first)
    tracer.keep_detail(model, first, calibration.steps)
    return calibration
