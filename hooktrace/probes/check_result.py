"""What debug checks found on one call: flags that nobody has read; in the drain, anomalies.

debug_checks.py --CheckResult, copied to the host--> ring --> drain: has_arrived()? --> read()
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..capture.buckets import BucketSlot
from ..capture.host_copy import HostCopy
from ..capture.loss_scale import is_loss_scaled
from ..records import AnomalyRecord
from .anomalies import anomaly_of

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler

_CHANGED = (
    "the result changed between the completion of the hook's future and the end of the backward "
    "pass, when DDP may have read it already"
)

_HIDDEN = "and its result has none, so that the loss scaler does not leave the step out"


class CheckResult:
    """What one look at a call found, on its way to the host; ``time_ns``: when it was looked at."""

    __slots__ = ("_copy", "_found", "_hidden", "_time_ns", "scaled", "slot", "step")

    def __init__(self, slot: BucketSlot, step: int, time_ns: int, copy: HostCopy) -> None:
        self.slot = slot
        self.step = step
        self.scaled = is_loss_scaled()
        """Of a loss whose scaler leaves a step out that is not finite."""
        self._time_ns = time_ns
        self._copy = copy

    def assemble(self, into: Assembler) -> None:
        """Wait until the flags are on the host."""
        into.add_result(self)

    def arrive(self, into: Assembler) -> None:
        """Become anomalies; after ``read``."""
        into.add_found(self, self.anomalies())

    def has_arrived(self) -> bool:
        """Return whether it is on the host."""
        return self._copy.has_arrived()

    def let_go(self) -> None:
        """Take note that nobody reads it."""
        self._copy.let_go()

    def read(self) -> None:
        """Take what has arrived."""
        found = self._found = self._copy.read()
        finite = {name: all(flags.tolist()) for name, flags in found.items() if name != "changed"}
        self._hidden = self.scaled and finite.get("result", False) and not finite["gradients"]
        self.scaled = self.scaled and not self._hidden

    def anomalies(self) -> Iterator[AnomalyRecord]:
        """Yield what was wrong."""
        found = self._found
        if "changed" in found:
            if found["changed"]:
                yield self._anomaly("changed_after_completion", _CHANGED)
            return
        name = self._first_not_finite(found["gradients"])
        if "result" not in found and name is not None:
            what = f"the gradient of {name} had NaN or inf before the hook"
            yield self._anomaly("nonfinite_gradient", what, stage="ready", parameter=name)
        elif self._hidden:
            what = f"the gradient of {name} had NaN or inf before the hook, {_HIDDEN}"
            yield self._anomaly("nonfinite_gradient", what, stage="ready", parameter=name)
        elif "result" in found and name is None:
            name = self._first_not_finite(found["result"])
            if name is not None:
                what = f"the result of {name} has NaN or inf, and this rank's gradients had none"
                yield self._anomaly("nonfinite_average", what, parameter=name)

    def _first_not_finite(self, finite: torch.Tensor) -> str | None:
        flags = finite.tolist()
        return None if all(flags) else self.slot.parameters[flags.index(False)][0]

    def _anomaly(self, kind: str, what: str, **where: Any) -> AnomalyRecord:
        return anomaly_of(self.slot, kind, what, step=self.step, time_ns=self._time_ns, **where)
