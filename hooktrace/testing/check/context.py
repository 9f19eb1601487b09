"""What a case has on its rank: the hook, the other ranks, and a place for what it finds.

The check's own few collectives go over connections that neither the hook nor torch.distributed
knows of (``PrivateGroup``), so they cannot pair up with the hook's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from ...probes.compare import digest
from ...ranks.private_group import PrivateGroup
from ...records import AnomalyRecord
from ...records.anomalies import anomaly_kind
from ...tracing.tracer import Tracer
from .results import Measured, Problem, Status, status_of
from .spec import Loaded


class SetupError(Exception):
    """The state could not be made: nothing that the hook itself could be blamed for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What earlier cases found out.

    ``error``: median relative L2 error of ordinary steps, ``None`` where it is not known.
    ``one_bucket``: many buckets hung or crashed, so go on with one, to see what else is wrong.
    """

    error: float | None = None
    one_bucket: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether so little is lost that a wrong result can be told from compression."""
        return self.error is not None and self.error <= _NEARLY_LOSSLESS


_NEARLY_LOSSLESS = 0.05


class TracedTraining(Protocol):
    """A training run of a case, which ends with it."""

    tracer: Tracer

    def collect_anomalies(self, ignore: Sequence[str] = ()) -> list[AnomalyRecord]:
        """Turn what the tracer saw into problems, except kinds to ignore; return all it saw."""


@dataclass(slots=True)
class Context:
    """One case on one rank."""

    case: str
    loaded: Loaded
    rank: int
    size: int
    timeout_s: float
    known: Known
    problems: list[Problem] = field(default_factory=list)
    note: str = ""
    measured: Measured = field(default_factory=Measured)
    stop: bool = False
    """Set by a case after which no other one can say anything."""
    trainings: list[TracedTraining] = field(default_factory=list)
    _group: PrivateGroup | None = None

    @property
    def local(self) -> bool:
        """Whether results differ between ranks by design."""
        return self.loaded.local

    def find(
        self, kind: str, what: str, *, remedy: str | None = None, status: Status | None = None
    ) -> None:
        """Put a problem of this rank on record.

        ``kind``: of ``records.anomalies``, which says remedy and status where they are not given.
        """
        remedy = anomaly_kind(kind).remedy if remedy is None else remedy
        self.problems.append(
            Problem(
                case=self.case,
                status=status or status_of(kind),
                kind=kind,
                message=f"{what}; {remedy}" if remedy else what,
                rank=self.rank,
            )
        )

    def new_state(self) -> Any:
        """Return a new state for a model; raises ``SetupError`` where that fails."""
        try:
            return self.loaded.new_state(dist.group.WORLD)
        except Exception as error:
            raise SetupError(
                f"the state of {self.loaded.name} could not be made "
                f"({type(error).__name__}: {error}); name a function that makes one without "
                "arguments, or out of the process group"
            ) from error

    def all_agree(self, flag: bool) -> bool:
        """Return whether all ranks say yes; waits for all of them."""
        return self._others().latest(0 if flag else 1) == 0

    def same_everywhere(self, tensor: torch.Tensor) -> bool:
        """Return whether all ranks have the same bits, but for chance; waits for all of them."""
        own = digest(tensor.flatten())
        rows = [torch.empty_like(own) for _ in range(self.size)]
        self._others().gather(own, rows).wait()
        return all(torch.equal(row, own) for row in rows)

    def gathered(self, number: float) -> list[float]:
        """Return every rank's number; waits for all of them."""
        own = torch.tensor([number], dtype=torch.float64)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        self._others().gather(own, rows).wait()
        return [float(row) for row in rows]

    def _others(self) -> PrivateGroup:
        if self._group is None:
            timeout = timedelta(seconds=2 * self.timeout_s)
            self._group = PrivateGroup("hooktrace/check", self.rank, self.size, timeout)
        return self._group
