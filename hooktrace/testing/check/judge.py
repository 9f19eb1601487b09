"""What a check found: how each rank's process ended --> problems, a result a case and a hook.

    RankResult of every rank --> RankEnd --judge--> CaseResult --> CheckResult --> command.py

When one rank raises or dies, its connections close, and the others fail or hang because of that.
So an error that only says that a connection is gone counts where there is no other, a crash where
no rank had raised before it, and ranks that were still waiting are no hang where one of them ended
badly.  ``records.anomalies`` says which problems fail a hook, and which only warn.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ...records.anomalies import anomaly_kind
from .stacks import describe

Status = Literal["pass", "warn", "fail", "skip"]

_PEER_IS_GONE = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|[Tt]imed out|[Tt]imeout|Socket closed"
)
_SOURCE = re.compile(r"\[enforce fail at \S*?([^/\s]+)\] ?")
"""How gloo's errors begin: the path of a file on the machine that torch was built on."""

_WORDS = 240
_NAMED = {"not_averaged", "averaged_twice", "wrong_scale", "wrong_sign", "not_communicated"}
_SAID_BETTER = {
    "wrong_gradients": {*_NAMED, "ranks_missing"},
    "nonfinite_average": {"nonfinite_result"},
}
"""Kinds that say nothing more where one of the others was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong with a hook: ``message`` says what, and where it can, what to do.

    ``kind``: of ``records.anomalies``.  ``rank``: the one that saw it, ``None`` where all did.
    """

    case: str
    kind: str
    message: str
    rank: int | None = None

    @property
    def status(self) -> Status:
        """What it means for its hook."""
        return anomaly_kind(self.kind).severity


def _worst(problems: Sequence[Problem]) -> Status:
    found = {problem.status for problem in problems}
    return "fail" if "fail" in found else "warn" if "warn" in found else "pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What ordinary steps showed; ``None`` where it is not known.

    ``error``: median relative L2 error of a step against a lossless average.  ``sum_error``: that
    of the sum of all steps, which is what error feedback keeps small.  ``ratio``: gradient bytes
    over wire bytes, inf where nothing was sent.
    """

    error: float | None = None
    sum_error: float | None = None
    ratio: float | None = None


@dataclass(slots=True, kw_only=True)
class RankResult:
    """What a rank found in a case, and how it came to the case's end.

    ``note``: what was measured.  ``fine``: all results were what the wire explains.  ``stop``: no
    other case can say anything.  ``raised_at``: when it raised, in seconds of the monotonic clock;
    ``consequence``: that was because of another rank.
    """

    problems: list[Problem] = field(default_factory=list)
    note: str = ""
    measured: Measured = field(default_factory=Measured)
    fine: bool | None = None
    stop: bool = False
    raised_at: float = math.inf
    consequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """How a rank's process ended.

    ``result``: ``None`` where there is none.  ``code``: its exit code, negative for a signal,
    ``None`` where the deadline ended it.  ``ended_at``: in seconds of the monotonic clock.
    ``stacks``: of all threads, where it crashed or was ended.  ``output``: what it printed.
    """

    rank: int
    result: RankResult | None = None
    code: int | None = None
    ended_at: float = 0.0
    stacks: str = ""
    output: str = ""

    @property
    def came_to_the_end(self) -> bool:
        """Whether it did all that the case asks of it."""
        return self.result is not None and self.result.raised_at == math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """How a hook did in one case.

    ``note``: what was measured, or why the case was skipped.  ``stacks``: of all threads of all
    ranks where one hung or crashed.  ``fine``, ``stop``: as of a rank.
    """

    case: str
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0
    note: str = ""
    skipped: bool = False
    measured: Measured = field(default_factory=Measured)
    stacks: str = ""
    fine: bool | None = None
    stop: bool = False

    @property
    def status(self) -> Status:
        """The worst of the problems'."""
        return "skip" if self.skipped else _worst(self.problems)

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
    def verdict(self) -> Status:
        """Fail, warn or pass."""
        return _worst(self.problems)


def judge(case: str, ends: Sequence[RankEnd], *, seconds: float, deadline_s: float) -> CaseResult:
    """Return what a case found out."""
    results = [end.result for end in ends if end.result is not None]
    own = [result for result in results if not result.consequence]
    raised_first = min((result.raised_at for result in own), default=math.inf)
    silent = [end for end in ends if end.result is None]
    died = [end for end in silent if end.code is not None and end.ended_at < raised_first]
    crashed = sorted(died, key=lambda end: end.ended_at)
    found = [problem for result in own for problem in result.problems]
    shown: list[RankEnd] = []
    if crashed:
        shown = crashed
        found.append(_crash(case, crashed[0]))
    elif raised_first == math.inf:
        shown = [end for end in silent if end.code is None]
        if shown:
            where = describe({end.rank: end.stacks for end in shown})
            message = f"not done after {deadline_s:g} s; {where}"
            found.append(Problem(case=case, kind="hang", message=message))
    if not any(problem.status == "fail" for problem in found):
        found += [p for result in results if result.consequence for p in result.problems]
    # A fatal error's are followed by a list of extension modules.
    stacks = [(end.rank, end.stacks.partition("\nExtension modules:")[0]) for end in shown]
    fine = [result.fine for result in results if result.fine is not None]
    return CaseResult(
        case=case,
        problems=merge(found, len(ends)),
        seconds=seconds,
        note=results[0].note if results else "",
        stacks="\n".join(f"rank {rank}:\n{frames.strip()}" for rank, frames in stacks),
        # All ranks must take the same for known, and a local hook's results differ.
        measured=max(
            (r.measured for r in results), key=lambda m: m.error or 0.0, default=Measured()
        ),
        fine=all(fine) if fine else None,
        stop=any(result.stop for result in results),
    )


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
        merged.append(replace(first, rank=None if len(seen_by) in (0, ranks) else first.rank))
    return tuple(merged)


def is_consequence(message: str) -> bool:
    """Return whether an error only says that another rank is gone."""
    return _PEER_IS_GONE.search(message) is not None


def _crash(case: str, end: RankEnd) -> Problem:
    code = end.code or 0
    how = (
        f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    )
    parts = [f"rank {end.rank} {how}"]
    said = [line.strip() for line in end.output.splitlines() if line.strip()]
    if said:
        words = _SOURCE.sub(r"\1 ", said[-1].removeprefix("what():").strip())
        parts.append(f"its last words: {words[:_WORDS]}")
    if end.stacks:
        parts.append(describe({end.rank: end.stacks}))
    return Problem(case=case, kind="crash", message="; ".join(parts), rank=end.rank)
