"""What a check found: a problem, the result of a case, and of a hook, as data and as text.

``records.anomalies`` says which problems fail a hook, and which only warn.
"""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from ...records.anomalies import anomaly_kind

Status = Literal["fail", "warn", "pass"]
_STATUSES: tuple[Status, ...] = ("fail", "warn", "pass")


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
    return min((problem.status for problem in problems), key=_STATUSES.index, default="pass")


@dataclass(slots=True, kw_only=True)
class CaseResult:
    """How a hook did in one case, as one rank saw it, or all of them together.

    ``note``: a remark, such as how much is lost.  ``stacks``: of all threads of ranks that hung or
    crashed.  For the host: ``loses``: more than the bytes explain; ``bits``: a digest of each run's
    results; ``raised_at``: when a rank raised, in seconds of the monotonic clock.
    """

    case: str
    problems: list[Problem] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""
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

    def text(self, told: dict[tuple[str, str], str]) -> str:
        """Return a row of a table.

        ``told``: by a problem's kind and first words the case that had it first; it is named then.
        """
        lines = []
        for problem in self.problems:
            first = told.setdefault((problem.kind, problem.message.partition(":")[0]), self.case)
            rank = "" if problem.rank is None else f"rank {problem.rank}: "
            said = rank + problem.message if first == self.case else f"as in {first!r}"
            lines.append(f"{problem.kind}: {said}")
        head = f" {self.case:<14} {self.status}   {self.seconds:4.1f}   "
        width = max(shutil.get_terminal_size((120, 24)).columns, 80) - len(head)
        lines = [one for line in (*lines, self.note) for one in textwrap.wrap(line, width)]
        return (head + f"\n{' ' * len(head)}".join(lines)).rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Everything that was found out about one hook."""

    hook: str
    ranks: int
    cases: list[CaseResult] = field(default_factory=list)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, in the order of the cases."""
        return tuple(problem for case in self.cases for problem in case.problems)

    @property
    def failed(self) -> tuple[Problem, ...]:
        """The problems that fail the hook."""
        return tuple(problem for problem in self.problems if problem.status == "fail")

    def summary(self) -> str:
        """Return the verdict, and the stacks of ranks that hung or crashed."""
        statuses = [case.status for case in self.cases]
        counts = [f"{statuses.count(one)} {one}" for one in _STATUSES if one in statuses]
        on = f"{self.ranks} gloo rank{'s' * (self.ranks > 1)}"
        text = f"\n{self.hook} on {on}: {_worst(self.problems)} ({', '.join(counts)})"
        stacks = [f"\nstacks, {case.case}:\n{case.stacks}" for case in self.cases if case.stacks]
        return "\n".join([text, *stacks])

    def __str__(self) -> str:
        """Return what ``hooktrace check`` prints."""
        told: dict[tuple[str, str], str] = {}
        return "\n".join([*(case.text(told) for case in self.cases), self.summary()])
