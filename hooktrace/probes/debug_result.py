"""What debug checks found on one call: flags, and in the drain the anomalies that they mean.

debug_checks.py --DebugResult, copied to the host--> ring --> drain --> anomalies()
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..records import AnomalyRecord
from .probe_result import Found

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler

_CHANGED = (
    "the result changed between the completion of the hook's future and the end of the backward "
    "pass, when DDP may have read it already"
)

_HIDDEN = "and its result has none, so that the loss scaler does not leave the step out"


@dataclass(kw_only=True)
class DebugResult(Found):
    """What one look at a call found.

    ``gradients`` and ``result``: which parameters' were finite, bool of shape (parameters,).
    ``changed``: whether the result did, bool.  One of ``changed`` and ``gradients`` is there.
    """

    gradients: torch.Tensor | None = None
    result: torch.Tensor | None = None
    changed: torch.Tensor | None = None

    def arrive(self, into: Assembler) -> None:
        """Become anomalies; those that a loss scaler does not see are none of its own."""
        anomalies = list(self.anomalies())
        self.scaled = self.scaled and not self.is_hidden
        into.add_found(self, anomalies)

    @property
    def is_hidden(self) -> bool:
        """Whether a loss scaler looks for NaN and inf that the hook has hidden from it."""
        if not self.scaled or self.gradients is None or self.result is None:
            return False
        return bool(self.result.all()) and not bool(self.gradients.all())

    def anomalies(self) -> Iterator[AnomalyRecord]:
        """Yield what was wrong."""
        if self.changed is not None:
            if self.changed:
                yield self.anomaly("changed_after_completion", _CHANGED)
            return
        name = self._first_not_finite(self.gradients)
        if name is not None and (self.result is None or self.is_hidden):
            hidden = f", {_HIDDEN}" if self.is_hidden else ""
            what = f"the gradient of {name} had NaN or inf before the hook{hidden}"
            yield self.anomaly("nonfinite_gradient", what, stage="ready", parameter=name)
        elif self.result is not None and name is None:
            name = self._first_not_finite(self.result)
            if name is not None:
                what = f"the result of {name} has NaN or inf, and this rank's gradients had none"
                yield self.anomaly("nonfinite_average", what, parameter=name)

    def _first_not_finite(self, finite: torch.Tensor | None) -> str | None:
        flags = [] if finite is None else finite.tolist()
        return None if all(flags) else self.slot.parameters[flags.index(False)][0]
