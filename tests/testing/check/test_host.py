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
ONE, OTHER = {"r": "x"}, {"r": "y"}
RAISED = RankError(1, "it ended with exit code 1", Path())


def rank(number: int, *kinds: str, **options: Any) -> CaseResult:
    """Return the result of a rank with problems of these kinds."""
    problems = [Problem(case="c", kind=kind, message="m", rank=number) for kind in kinds]
    return CaseResult(case="c", problems=problems, **options)


def judged(*results: CaseResult | None, ended: Exception | None = None, said: str = "") -> Any:
    """Return what is made of two ranks' results; ``said``: by rank 1."""
    context = Context(
        hook=HookSpec(name="h", hook=None), size=2, timeout_s=20.0, result=CaseResult(case="c")
    )
    left = {number: one for number, one in enumerate(results) if one is not None}
    return judge(context, left, ended, {1: said})


def test_ranks_that_end_well_pass() -> None:
    """With a note and the largest error of all."""
    found = judged(
        rank(0, note="n", measured=Measured(error=0.1), bits={"r": "a"}),
        rank(1, note="n", measured=Measured(error=0.2), bits={"r": "a"}),
    )
    assert (found.status, found.note, found.measured.error) == ("pass", "n", 0.2)


@pytest.mark.parametrize(
    ("results", "ended", "expected"),
    [
        # A rank is named only if not all saw it.
        ((rank(0, "a"), rank(1, "a")), None, [("a", None)]),
        ((rank(0), rank(1, "a")), None, [("a", 1)]),
        # What each rank got is compared here.
        ((rank(0, "a", bits=ONE), rank(1, bits=OTHER)), None, [("replicas_diverge", None)]),
        # A later error is explained by the connection that the first one lost.
        ((rank(0, "b", raised_at=6.1), rank(1, "a", raised_at=5.0)), RAISED, [("a", 1)]),
        ((None, rank(1, "a", raised_at=5.0)), RAISED, [("a", 1)]),
        ((rank(0, "a", raised_at=5.1), rank(1, "a", raised_at=5.0)), RAISED, [("a", None)]),
    ],
)  # fmt: skip
def test_the_first_cause_counts(
    results: tuple[CaseResult | None, ...],
    ended: Exception | None,
    expected: list[tuple[str, int | None]],
) -> None:
    """And nothing that follows from it."""
    assert [(f.kind, f.rank) for f in judged(*results, ended=ended).problems] == expected


def test_ranks_at_the_deadline_hang() -> None:
    """The reason says where they stand, and the stacks are kept; one may write nothing."""
    result = judged(None, None, ended=TimeoutError(), said=f"Timeout (0:00:20)!\n{STANDS}\n")
    (hang,) = result.problems
    assert hang.message == (
        "not done after 20 s; rank 0: no stacks; rank 1: in stands_still (hooks.py:7)"
    )
    assert (hang.status, hang.rank, result.kinds) == ("fail", None, {"hang"})
    assert result.stacks == f"rank 1:\nTimeout (0:00:20)!\n{STANDS}\n"


def test_a_rank_without_a_result_crashed() -> None:
    """Its signal, its last words and its place are told, and not what the others made of it."""
    ended = RankError(1, "killed by SIGABRT", Path())
    result = judged(rank(0, "exception", raised_at=4.1), None, ended=ended, said=WORDS + STANDS)
    (crash,) = result.problems
    assert (crash.kind, crash.rank) == ("crash", 1)
    assert crash.message == (
        "rank 1: killed by SIGABRT; its last words: pair.cc:456 too long; "
        "in stands_still (hooks.py:7)"
    )


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [(["of_tomorrow"], "warn"), (["precision", "hang"], "fail"), ([], "pass")],
)
def test_the_worst_finding_decides(kinds: list[str], verdict: str) -> None:
    """A case's and a result's; a kind that nobody knows warns."""
    case = rank(0, *kinds)
    assert case.status == verdict
    assert CheckResult(hook="h", ranks=2, cases=[case]).verdict == verdict
