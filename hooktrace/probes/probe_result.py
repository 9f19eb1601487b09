"""What was found of a call: tensors, which nobody has looked at yet; in the drain, records.

probe.py --ProbeResult, copied to the host--> ring --> drain: has_arrived()?
--> read() --compare.numbers--> ErrorRecord, --arrivals--> SkewRecord, --diagnosis.py--> anomalies

debug_checks.py --DebugResult--> the same way --> anomalies
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from ..records import AnomalyRecord, ErrorRecord, ParameterError, SkewRecord
from ..records.anomalies import anomaly_kind
from ..staging.backward import is_loss_scaled
from ..staging.devices import EventPool, HostCopy, keep_for_current_stream
from ..staging.slots import BucketSlot
from .compare import lengths_of, numbers

if TYPE_CHECKING:
    from ..tracing.assembler import Assembler
    from ..tracing.tracer import Tracer

_WORST = 3
"""Parameters of which the error is recorded one by one."""


@dataclass(kw_only=True)
class Found(ABC):
    """What was found of one call, on its way to the host.

    ``time_ns``: when.  ``scaled``: a loss scaler leaves a step out that is not finite.  Subclasses
    have a field for each tensor, which is there once ``read`` was called.
    """

    slot: BucketSlot
    step: int
    time_ns: int = 0
    scaled: bool = field(default_factory=is_loss_scaled)
    _copy: HostCopy | None = None

    def push(self, sink: Tracer, **tensors: torch.Tensor) -> None:
        """Send the tensors, found now, and have the drain wait for them."""
        self.time_ns = sink.clock()
        self.send(sink.event_pool, tensors)
        sink.push(self)

    def send(self, pool: EventPool, tensors: Mapping[str, torch.Tensor]) -> None:
        """Have the tensors, by the names that they have here, come to the host."""
        self._copy = HostCopy(tensors, pool)

    def assemble(self, into: Assembler) -> None:
        """Wait until the tensors are on the host."""
        into.add_result(self)

    @abstractmethod
    def arrive(self, into: Assembler) -> None:
        """Become records; after ``read``."""

    def has_arrived(self) -> bool:
        """Return whether all tensors are on the host."""
        return self._copy is None or self._copy.has_arrived()

    def let_go(self) -> None:
        """Take note that nobody reads the tensors."""
        if self._copy is not None:
            self._copy.let_go()

    def read(self) -> None:
        """Take the tensors that have arrived."""
        copy, self._copy = self._copy, None
        for name, tensor in {} if copy is None else copy.read().items():
            setattr(self, name, tensor)

    def anomaly(
        self, kind: str, what: str, *, stage: str = "hook", parameter: str | None = None
    ) -> AnomalyRecord:
        """Return the record of an anomaly of this bucket; see ``anomaly_of``."""
        return anomaly_of(
            self.slot,
            kind,
            what,
            step=self.step,
            time_ns=self.time_ns,
            stage=stage,
            parameter=parameter,
        )


@dataclass(kw_only=True)
class ProbeResult(Found):
    """What a probe found, as tensors; of which the drain makes records.

    ``sums``: of ``measure``, shape (parameters, 7).  ``finite``: whether each parameter's own
    gradient was, on this rank.  ``samples``: (ranks, k), of all ranks' own gradients.
    ``rank``: this one's place in the group, whose ``ranks`` these are in the job (none: the same).
    ``local``: whether results differ between ranks by design.
    ``result_sample``: (k,), of the result at the same places.  ``residual_square``: the square of
    what error feedback keeps.  ``before``: the step checked before, and ``checksums`` its results'
    on each rank, (ranks, 2), where all of them have some of the same buckets.  ``ready``: host ns
    at which the hook was called; ``arrivals``: that time on each rank in rank 0's clock and its
    uncertainty, -1 where that is unknown, (ranks, 2).  Without ``sums`` there was nothing to
    compare.  ``parts``: names and elements of what was compared, the bucket's parameters by
    default; of a unit this rank has a part of each.
    """

    rank: int
    local: bool
    ranks: tuple[int, ...] = ()
    ready: int = 0
    sums: torch.Tensor | None = None
    finite: torch.Tensor | None = None
    samples: torch.Tensor | None = None
    result_sample: torch.Tensor | None = None
    before: StepChecksums | None = None
    checksums: torch.Tensor | None = None
    arrivals: torch.Tensor | None = None
    residual_square: torch.Tensor | None = None
    parts: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        parameters = self.slot.parameters
        if not self.parts:
            names = [name for name, _ in parameters]
            self.parts = tuple(zip(names, lengths_of(parameters), strict=True))

    def read(self) -> None:
        """Take the tensors; checksums are none where ranks have them of different buckets."""
        has_copy = self._copy is not None
        super().read()
        if has_copy and self.checksums is not None:
            checksums, identities = self.checksums.split((2, 1), dim=1)
            self.checksums = checksums if len(identities.unique()) == 1 else None

    def arrive(self, into: Assembler) -> None:
        """Become numbers of its bucket's record, a skew, and anomalies."""
        into.add_numbers(self)

    @property
    def overflow(self) -> tuple[str, float] | None:
        """The first parameter where only the result has NaN or inf, and its largest reference."""
        rows = [] if self.sums is None else self.sums.tolist()
        for (name, _), (_, reference, result, _, _, _, largest) in zip(
            self.parts, rows, strict=True
        ):
            if math.isfinite(reference) and not math.isfinite(result):
                return name, largest
        return None

    def named(self, place: int) -> int:
        """Return the rank in the job of a place in the group."""
        return self.ranks[place] if self.ranks else place


@dataclass(slots=True)
class StepChecksums:
    """Checksums of a step's checked results: ``sums`` of each bucket's, int64 of shape (2,)."""

    step: int
    sums: dict[int, torch.Tensor]

    @property
    def identity(self) -> int:
        """A number of the step and its buckets: only checksums of the same can be compared."""
        return zlib.crc32(repr((self.step, sorted(self.sums))).encode())

    def joint(self, device: torch.device) -> torch.Tensor:
        """Return one checksum of all buckets, int64 of shape (2,) on their device."""
        keep_for_current_stream(self.sums.values())
        total = torch.zeros(2, dtype=torch.int64, device=device)
        for index, sums in sorted(self.sums.items()):
            total += sums * (2 * index + 1)
        return total


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


def error_record(checked: ProbeResult) -> ErrorRecord | None:
    """Return the numbers of a probe; ``None`` where it failed or its call did."""
    if checked.sums is None:
        return None
    rows = checked.sums.tolist()
    parts = [
        (name, numbers([row], length))
        for (name, length), row in zip(checked.parts, rows, strict=True)
    ]
    worst = sorted(
        (p for p in parts if p[1].relative_l2 is not None and p[1].reference_l2),
        key=lambda p: -(p[1].relative_l2 or 0.0),
    )
    return replace(
        numbers(rows, sum(length for _, length in checked.parts)),
        residual_l2=None if checked.residual_square is None else math.sqrt(checked.residual_square),
        by_design=checked.local,
        worst=tuple(
            ParameterError(
                name=name,
                relative_l2=error.relative_l2,
                cosine=error.cosine,
                max_absolute=error.max_absolute,
            )
            for name, error in worst[:_WORST]
        ),
    )


def skew_record(checked: ProbeResult) -> SkewRecord | None:
    """Return when each rank had a checked bucket ready; ``None`` where the probe failed."""
    if checked.arrivals is None:
        return None
    slot = checked.slot
    times, uncertainties = zip(*checked.arrivals.tolist(), strict=True)
    known = min(uncertainties) >= 0
    return SkewRecord(
        model=slot.model.name,
        hook=slot.model.hook,
        rebuild=slot.rebuild,
        step=checked.step,
        bucket=slot.index,
        time_ns=checked.ready,
        rank=checked.named(checked.rank),
        ranks=tuple(checked.named(place) for place in range(len(times))),
        arrivals_ns=tuple(time - min(times) for time in times),
        # Of the two clocks that are known worst.
        uncertainty_ns=sum(sorted(uncertainties)[-2:]) if known else None,
    )
