"""What a probe found, as it goes through the ring: tensors, which nobody has looked at yet.

probe.py, local.py --ProbeResult--> ring --> drain --> result_records.py, diagnosis.py
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..capture.buckets import BucketSlot
from ..capture.calls import BucketCall
from ..records import Scope


@dataclass(slots=True)
class ProbeResult:
    """What a probe found, as tensors; of which the drain makes records.

    ``sums``: of ``measure``, shape (parameters, 6).  ``finite``: whether each parameter's own
    gradient was, on this rank.  ``samples``: (ranks, k), of all ranks' own gradients.
    ``rank``: this one's place in the group, whose ``ranks`` these are in the job (none: the same).
    ``local``: whether results differ between ranks by design.  ``scope``: as in ``ErrorRecord``.
    ``result_sample``: (k,), of the result at the same places.  ``overflow``: (parameter, value of
    the reference) at the first element that only the result has as NaN or inf.  ``before``:
    the step probed before, and ``checksums`` its results' on each rank, (ranks, 2).  ``ready``:
    host ns at which the hook was called; ``arrivals``: that time on each rank in rank 0's clock and
    its uncertainty, -1 where that is unknown, (ranks, 2).  Without ``sums`` there was nothing to
    compare.  ``call``: the one that was probed, after
    its end; ``None`` where it was probed before its hook ran.
    """

    slot: BucketSlot
    step: int
    rank: int
    local: bool
    scope: Scope = "global"
    ranks: tuple[int, ...] = ()
    ready: int = 0
    time_ns: int = 0
    sums: torch.Tensor | None = None
    finite: torch.Tensor | None = None
    samples: torch.Tensor | None = None
    result_sample: torch.Tensor | None = None
    overflow: tuple[int, float] | None = None
    before: StepChecksums | None = None
    checksums: torch.Tensor | None = None
    arrivals: torch.Tensor | None = None
    residual_l2: float | None = None
    call: BucketCall | None = None

    def named(self, place: int) -> int:
        """Return the rank in the job of a place in the group."""
        return self.ranks[place] if self.ranks else place


@dataclass(slots=True)
class StepChecksums:
    """Checksums of a step's probed results: ``sums`` of each bucket's, int64 of shape (2,)."""

    step: int
    sums: dict[int, torch.Tensor]

    def joint(self) -> torch.Tensor:
        """Return one checksum of all buckets, int64 of shape (2,)."""
        total = torch.zeros(2, dtype=torch.int64)
        for index, sums in sorted(self.sums.items()):
            total += sums * (2 * index + 1)
        return total
