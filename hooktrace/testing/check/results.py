"""What a check found: problems, one result a case, one result a hook.  Values only, no torch.

    RankResult of every rank --judge.py--> CaseResult --> CheckResult --command.py--> a table

``records.anomalies`` says which problems fail a hook, since training with it ends or goes wrong,
and which only warn.  What a case does on purpose is judged by that case: a hook that raises on NaN
says so, and only warns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ...records.anomalies import anomaly_kind

Status = Literal["pass", "warn", "fail", "skip"]

_SAID_BETTER = {
    "wrong_gradients": {
        *("not_averaged", "averaged_twice", "wrong_scale", "wrong_sign"),
        *("not_communicated", "ranks_missing"),
    },
    "nonfinite_average": {"nonfinite_result"},
}
"""Kinds that say nothing more where one of the others was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong with a hook: ``message`` says what, and where it can, what to do.

    ``kind``: of ``records.anomalies``.  ``rank``: the one that saw it, ``None`` where all did or
    where it is nobody's own.  ``only_warns``: whatever is to be made of its kind.
    """

    case: str
    kind: str
    message: str
    rank: int | None = None
    only_warns: bool = False

    @property
    def status(self) -> Status:
        """What it means for its hook."""
        return "warn" if self.only_warns else anomaly_kind(self.kind).severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What ordinary steps showed; ``None`` where it is not known.

    ``error``: median relative L2 error of a step against a lossless average.  ``sum_error``: that
    of the sum of all steps, which is what error feedback keeps small.  ``ratio``: gradient bytes
    over wire bytes, inf where nothing was sent.  ``unexplained``: the median of a
    step's error that neither error feedback nor clipping explains.
    """

    error: float | None = None
    sum_error: float | None = None
    ratio: float | None = None
    unexplained: float | None = None


@dataclass(slots=True, kw_only=True)
class RankResult:
    """What a rank found in a case, and how it came to the case's end.

    ``note``: what was measured.  ``stop``: no other case can say anything.  ``raised_at``: when it
    raised, in seconds of the monotonic clock; ``consequence``: that was because of another rank.
    """

    problems: list[Problem] = field(default_factory=list)
    note: str = ""
    measured: Measured = field(default_factory=Measured)
    stop: bool = False
    raised_at: float | None = None
    consequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """How a hook did in one case.

    ``note``: what was measured, or why the case was skipped.  ``stacks``: of all threads of all
    ranks where one hung or crashed.  ``stop``: as of a rank.
    """

    case: str
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0
    note: str = ""
    skipped: bool = False
    measured: Measured = field(default_factory=Measured)
    stacks: str = ""
    stop: bool = False

    @property
    def status(self) -> Status:
        """The worst of the problems'."""
        if self.skipped:
            return "skip"
        found = {problem.status for problem in self.problems}
        return "fail" if "fail" in found else "warn" if "warn" in found else "pass"

    @property
    def kinds(self) -> set[str]:
        """What was found, in the words of ``records.anomalies``."""
        return {problem.kind for problem in self.problems}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Everything that was found out about one hook."""

    hook: str
    ranks: int
    cases: tuple[CaseResult, ...]

    @property
    def measured(self) -> Measured:
        """What the case of ordinary steps measured."""
        return next((c.measured for c in self.cases if c.measured != Measured()), Measured())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, in the order of the cases."""
        return tuple(problem for case in self.cases for problem in case.problems)

    @property
    def failed(self) -> tuple[Problem, ...]:
        """The problems that fail the hook."""
        return tuple(problem for problem in self.problems if problem.status == "fail")

    @property
    def warned(self) -> tuple[Problem, ...]:
        """The problems that only warn."""
        return tuple(problem for problem in self.problems if problem.status == "warn")

    @property
    def verdict(self) -> Status:
        """Fail, warn or pass."""
        return "fail" if self.failed else "warn" if self.warned else "pass"


def merge(problems: Sequence[Problem], ranks: int) -> tuple[Problem, ...]:
    """Return one problem a kind of what the ranks found in one case, buckets and ranks together.

    The lowest rank's first message stands for all; ``rank`` is ``None`` where all ranks agree.
    What another kind says better is left out.
    """
    alike: dict[str, list[Problem]] = {}
    for problem in problems:
        alike.setdefault(problem.kind, []).append(problem)
    merged = []
    for kind, same in alike.items():
        if alike.keys() & _SAID_BETTER.get(kind, ()):
            continue
        seen_by = {problem.rank for problem in same} - {None}
        first = min(same, key=lambda p: -1 if p.rank is None else p.rank)
        everyone = len(seen_by) in (0, ranks)
        merged.append(replace(first, rank=None if everyone else first.rank))
    return tuple(merged)
