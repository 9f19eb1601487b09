"""What a case has on its rank: the hook, the other ranks, and a place for what it finds.

The check's own few collectives go over connections that neither the hook nor torch.distributed
knows of (``PrivateGroup``), so they cannot pair up with the hook's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from ...probes.compare import digest
from ...ranks.private_group import PrivateGroup
from ...records.anomalies import anomaly_kind
from ...tracing.tracer import Tracer
from .results import Problem, RankResult
from .spec import Loaded

_NEARLY_LOSSLESS = 0.05


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


@dataclass(kw_only=True)
class Context:
    """One case on one rank.  ``tracers``: of the models that it has trained."""

    case: str
    loaded: Loaded
    rank: int
    size: int
    timeout_s: float
    known: Known
    result: RankResult = field(default_factory=RankResult)
    tracers: list[Tracer] = field(default_factory=list)

    def new_state(self) -> Any:
        """Return a new state for a model; raises ``UsageError`` where that fails."""
        return self.loaded.new_state(dist.group.WORLD)

    def find(
        self, kind: str, what: str, *, remedy: str | None = None, only_warns: bool = False
    ) -> None:
        """Put a problem of this rank on record.

        ``kind``: of ``records.anomalies``, which says the remedy where it is not given.
        """
        remedy = anomaly_kind(kind).remedy if remedy is None else remedy
        message = f"{what}; {remedy}" if remedy else what
        self.result.problems.append(
            Problem(
                case=self.case, kind=kind, message=message, rank=self.rank, only_warns=only_warns
            )
        )

    def find_anomalies(self, ignore: Sequence[str] = ()) -> None:
        """Put on record what the last model's tracer saw, except kinds to ignore."""
        for anomaly in self.tracers[-1].anomalies():
            if anomaly.kind not in ignore:
                self.find(anomaly.kind, anomaly.message, remedy="")

    def all_agree(self, flag: bool) -> bool:
        """Return whether all ranks say yes; waits for all of them."""
        return self._others.latest(0 if flag else 1) == 0

    def same_everywhere(self, tensor: torch.Tensor) -> bool:
        """Return whether all ranks have the same bits, but for chance; waits for all of them."""
        own = digest(tensor.flatten())
        rows = [torch.empty_like(own) for _ in range(self.size)]
        self._others.gather(own, rows).wait()
        return all(torch.equal(row, own) for row in rows)

    @cached_property
    def _others(self) -> PrivateGroup:
        timeout = timedelta(seconds=2 * self.timeout_s)
        return PrivateGroup("hooktrace/check", self.rank, self.size, timeout)
