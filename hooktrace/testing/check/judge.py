"""From how each rank's process ended to a result: the first cause, and not what it led to.

    RankEnd of every rank --judge--> CaseResult

When one rank raises or dies, its connections close, and the others fail or hang because of that.
So an error that only says that a connection is gone counts where there is no other, a crash where
no rank had raised before it, and ranks that were still waiting are no hang where one of them ended
badly.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from .results import CaseResult, Measured, Problem, merge, status_of
from .stacks import describe

_PEER_IS_GONE = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|[Tt]imed out|[Tt]imeout|Socket closed"
)
_SOURCE = re.compile(r"\[enforce fail at \S*?([^/\s]+)\] ?")
"""How gloo's errors begin: the path of a file on the machine that torch was built on."""
_WORDS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """What a rank that came to its case's end, or raised, has to say.

    ``raised_at``: when it raised, in seconds of the monotonic clock; ``consequence``: that was
    because of another rank.  ``usage``: the check cannot be made at all, and why.
    """

    problems: tuple[Problem, ...] = ()
    note: str = ""
    measured: Measured = field(default_factory=Measured)
    stop: bool = False
    raised_at: float | None = None
    consequence: bool = False
    usage: str | None = None


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
    def raised(self) -> bool:
        """Whether it raised, and not because of another rank."""
        result = self.result
        return result is not None and result.raised_at is not None and not result.consequence

    @property
    def died(self) -> bool:
        """Whether it ended by itself and left no result."""
        return self.result is None and self.code is not None


def judge(case: str, ends: Sequence[RankEnd], *, seconds: float, deadline_s: float) -> CaseResult:
    """Return what a case found out."""
    results = [end.result for end in ends if end.result is not None]
    raised_first = min(
        (end.result.raised_at for end in ends if end.raised and end.result is not None),
        default=None,
        key=lambda at: at or 0.0,
    )
    crashed = sorted(
        (e for e in ends if e.died and (raised_first is None or e.ended_at < raised_first)),
        key=lambda end: end.ended_at,
    )
    late = {end.rank: end.stacks for end in ends if end.result is None and not end.died}
    found = [f for result in results if not result.consequence for f in result.problems]
    found += [_crash(case, end) for end in crashed[:1]]
    explained = bool(crashed) or raised_first is not None
    if late and not explained:
        where = describe(late)
        found.append(_problem(case, "hang", f"not done after {deadline_s:g} s; {where}"))
    if not any(problem.status == "fail" for problem in found):
        found += [f for result in results if result.consequence for f in result.problems]
    shown = {end.rank: end.stacks for end in crashed} if crashed else {} if explained else late
    first = results[0] if results else RankResult()
    return CaseResult(
        case=case,
        problems=merge(found, len(ends)),
        seconds=seconds,
        note=first.note,
        stacks="\n".join(f"rank {rank}:\n{_only_frames(text)}" for rank, text in shown.items()),
        # All ranks must take the same for known, and a local hook's results differ.
        measured=max(
            (r.measured for r in results), key=lambda m: m.error or 0.0, default=Measured()
        ),
        stop=any(result.stop for result in results),
    )


def is_consequence(message: str) -> bool:
    """Return whether an error only says that another rank is gone."""
    return _PEER_IS_GONE.search(message) is not None


def _only_frames(stacks: str) -> str:
    """Return a dump without the list of extension modules that follows a fatal error's."""
    return stacks.partition("\nExtension modules:")[0].strip()


def _crash(case: str, end: RankEnd) -> Problem:
    assert end.code is not None
    if end.code < 0:
        how = f"rank {end.rank} was ended by {signal.Signals(-end.code).name}"
    else:
        how = f"rank {end.rank} ended with exit code {end.code}"
    said = [line.strip() for line in end.output.splitlines() if line.strip()]
    parts = [how]
    if said:
        words = _SOURCE.sub(r"\1 ", said[-1].removeprefix("what():").strip())
        parts.append(f"its last words: {words[:_WORDS]}")
    if end.stacks:
        parts.append(describe({end.rank: end.stacks}))
    return _problem(case, "crash", "; ".join(parts), end.rank)


def _problem(case: str, kind: str, message: str, rank: int | None = None) -> Problem:
    return Problem(case=case, status=status_of(kind), kind=kind, message=message, rank=rank)
