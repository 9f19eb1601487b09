"""From how each rank's process ended to a result: the first cause, and not what it led to.

    RankEnd of every rank --judge--> CaseResult

When one rank raises or dies, its connections close, and the others fail or hang because of that.
So an error that only says that a connection is gone counts where there is no other, a crash where
no rank had raised before it, and ranks that were still waiting are no hang where one of them ended
badly.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from .results import CaseResult, Measured, Problem, RankResult, merge
from .stacks import describe

_PEER_IS_GONE = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|[Tt]imed out|[Tt]imeout|Socket closed"
)
_SOURCE = re.compile(r"\[enforce fail at \S*?([^/\s]+)\] ?")
"""How gloo's errors begin: the path of a file on the machine that torch was built on."""
_WORDS = 240


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
    def raised_at(self) -> float:
        """When it raised, and not because of another rank; else inf."""
        result = self.result
        if result is None or result.raised_at is None or result.consequence:
            return math.inf
        return result.raised_at

    @property
    def came_to_the_end(self) -> bool:
        """Whether it did all that the case asks of it."""
        return self.result is not None and self.result.raised_at is None

    @property
    def died(self) -> bool:
        """Whether it ended by itself and left no result."""
        return self.result is None and self.code is not None


def judge(case: str, ends: Sequence[RankEnd], *, seconds: float, deadline_s: float) -> CaseResult:
    """Return what a case found out."""
    results = [end.result for end in ends if end.result is not None]
    raised_first = min(end.raised_at for end in ends)
    crashed = sorted(
        (end for end in ends if end.died and end.ended_at < raised_first),
        key=lambda end: end.ended_at,
    )
    late = [end for end in ends if end.result is None and not end.died]
    explained = bool(crashed) or raised_first < math.inf
    found = [p for result in results if not result.consequence for p in result.problems]
    if crashed:
        found.append(_crash(case, crashed[0]))
    elif late and not explained:
        where = describe({end.rank: end.stacks for end in late})
        message = f"not done after {deadline_s:g} s; {where}"
        found.append(Problem(case=case, kind="hang", message=message))
    if not any(problem.status == "fail" for problem in found):
        found += [p for result in results if result.consequence for p in result.problems]
    shown = crashed or ([] if explained else late)
    return CaseResult(
        case=case,
        problems=merge(found, len(ends)),
        seconds=seconds,
        note=results[0].note if results else "",
        stacks="\n".join(f"rank {end.rank}:\n{_only_frames(end.stacks)}" for end in shown),
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
    return Problem(case=case, kind="crash", message="; ".join(parts), rank=end.rank)
