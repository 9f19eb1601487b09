"""How ranks ended becomes what a case found: the first cause only, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hooktrace.testing.check.host import judge
from hooktrace.testing.check.rank import Context
from hooktrace.testing.check.result import CaseResult, CheckResult, Measured, Problem
from hooktrace.testing.check.spec import HookSpec
from hooktrace.testing.ranks import RankError

STANDS = """Current thread 0x01 (most recent call first):
  File "/home/me/hooks.py", line 7 in stands_still"""
WORDS = """terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at /build/gloo/pair.cc:456] too long

Fatal Python error: Aborted

"""


def problem(kind: str, rank: int | None = 0, message: str = "m") -> Problem:
    return Problem(case="c", kind=kind, message=message, rank=rank)


def rank(number: int, *kinds: str, **options: Any) -> CaseResult:
    """Return the result of a rank with problems of these kinds."""
    return CaseResult(case="c", problems=[problem(kind, number) for kind in kinds], **options)


def judged(*results: CaseResult | None, ended: Exception | None = None, **said: str) -> CaseResult:
    """Return what is made of two ranks' results; ``said``: as ``r0``, ``r1``."""
    context = Context(
        hook=HookSpec(name="h", hook=None), size=2, timeout_s=20.0, result=CaseResult(case="c")
    )
    left = {number: one for number, one in enumerate(results) if one is not None}
    return judge(context, left, ended, {int(name[1:]): text for name, text in said.items()})


def found(result: CaseResult) -> list[tuple[str, int | None]]:
    return [(f.kind, f.rank) for f in result.problems]


def test_ranks_that_end_well_pass() -> None:
    """With the first rank's note and the largest error of all."""
    result = judged(
        rank(0, note="n", measured=Measured(error=0.1)),
        rank(1, note="other", measured=Measured(error=0.2)),
    )
    assert (result.status, result.note) == ("pass", "n")
    assert result.measured.error == 0.2


def test_ranks_at_the_deadline_hang() -> None:
    """The reason says where they stand, and the stacks are kept; one may write nothing."""
    result = judged(None, None, ended=TimeoutError(), r1=f"hello\nTimeout (0:00:20)!\n{STANDS}\n")
    (hang,) = result.problems
    assert (
        hang.message
        == "not done after 20 s; rank 0: no stacks; rank 1: in stands_still (hooks.py:7)"
    )
    assert (hang.status, result.kinds) == ("fail", {"hang"})
    assert result.stacks == f"rank 1:\nTimeout (0:00:20)!\n{STANDS}"


def test_a_rank_that_raises_is_the_cause_of_what_follows() -> None:
    """Of a later error, which its lost connection explains; both count if both raise at once."""
    first, later = rank(1, "hook_exception", raised_at=5.0), rank(0, "exception", raised_at=6.1)
    ended = RankError(1, "it ended with exit code 1", Path())
    assert found(judged(later, first, ended=ended)) == [("hook_exception", 1)]
    assert found(judged(None, first, ended=ended)) == [("hook_exception", 1)]
    both = [rank(number, "hook_exception", raised_at=5.0 + number / 10) for number in range(2)]
    assert found(judged(*both, ended=ended)) == [("hook_exception", None)]


def test_a_rank_without_a_result_crashed() -> None:
    """Its signal, its last words and its place are told, and not what the others made of it."""
    said = f"{WORDS}{STANDS}\n\nExtension modules: a"
    ended = RankError(1, "killed by SIGABRT", Path())
    result = judged(rank(0, "exception", raised_at=4.1), None, ended=ended, r1=said)
    assert found(result) == [("crash", 1)]
    assert result.problems[0].message == (
        "rank 1: killed by SIGABRT; its last words: pair.cc:456 too long; "
        "in stands_still (hooks.py:7)"
    )
    assert result.stacks == f"rank 1:\nFatal Python error: Aborted\n\n{STANDS}"


def test_problems_of_ranks_become_one_a_kind() -> None:
    """The lowest rank speaks; a rank is named only if not all saw it."""
    assert found(judged(rank(0, "a"), rank(1, "b", "a"))) == [("a", None), ("b", 1)]


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [(["of_tomorrow"], "warn"), (["precision", "hang"], "fail"), ([], "pass")],
)
def test_the_worst_finding_decides(kinds: list[str], verdict: str) -> None:
    """A case's and a result's; a kind that nobody knows warns."""
    case = CaseResult(case="a", problems=[problem(kind) for kind in kinds])
    assert case.status == verdict
    assert CheckResult(hook="h", ranks=2, cases=[case]).verdict == verdict
