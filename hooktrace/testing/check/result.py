"""What a check found: a problem, the result of a case, and of a hook.

``records.anomalies`` says which problems fail a hook, and which only warn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...records.anomalies import anomaly_kind

Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong with a hook: ``message`` says what, and what to do.

    ``kind``: of ``records.anomalies``.  ``rank``: the one that saw it, ``None`` if all did.
    """

    case: str
    kind: str
    message: str
    rank: int | None = None

    @property
    def status(self) -> Status:
        """What it means for its hook."""
        return anomaly_kind(self.kind).severity


def _worst(problems: Iterable[Problem]) -> Status:
    found = {problem.status for problem in problems}
    return "fail" if "fail" in found else "warn" if "warn" in found else "pass"


class Measured(NamedTuple):
    """What a long case showed; ``None`` if it is not known.

    ``error``: median relative L2 error of a step against a lossless average.  ``sum_error``: that
    of the sum of all steps, which error feedback keeps small.  ``ratio``: gradient bytes over wire
    bytes.
    """

    error: float | None = None
    sum_error: float | None = None
    ratio: float | None = None


@dataclass(slots=True, kw_only=True)
class CaseResult:
    """How a hook did in one case, as one rank saw it, or all of them together.

    ``note``: a remark.  ``stacks``: of all threads of ranks that hung or crashed.  For the host:
    ``loses``: more than the bytes explain; ``bits``: a digest of each run's results; ``raised_at``:
    when a rank raised, in seconds of the monotonic clock.
    """

    case: str
    problems: list[Problem] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""
    measured: Measured = field(default_factory=Measured)
    stacks: str = ""
    loses: bool = False
    bits: dict[str, str] = field(default_factory=dict)
    raised_at: float = math.inf

    @property
    def status(self) -> Status:
        """The worst of the problems'."""
        return _worst(self.problems)

    @property
    def kinds(self) -> set[str]:
        """The kinds of the problems."""
        return {problem.kind for problem in self.problems}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Everything that was found out about one hook."""

    hook: str
    ranks: int
    cases: list[CaseResult] = field(default_factory=list)

    @property
    def measured(self) -> Measured:
        """What the last case that measured something measured, the one of ordinary training."""
        return ([Measured()] + [c.measured for c in self.cases if c.measured != Measured()])[-1]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, in the order of the cases."""
        return tuple(problem for case in self.cases for problem in case.problems)

    @property
    def failed(self) -> tuple[Problem, ...]:
        """The problems that fail the hook."""
        return tuple(problem for problem in self.problems if problem.status == "fail")

    @property
    def verdict(self) -> Status:
        """Fail, warn or pass."""
        return _worst(self.problems)
