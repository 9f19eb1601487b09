"""How ranks ended becomes what a case found: the first cause only, once."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from hooktrace.testing.check.judge import (
    CaseResult,
    CheckResult,
    Measured,
    Problem,
    RankEnd,
    RankResult,
    is_consequence,
    judge,
    merge,
)

STANDS = """Current thread 0x01 (most recent call first):
  File "/home/me/hooks.py", line 7 in stands_still
"""
WORDS = """terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at /build/gloo/pair.cc:456] too long

"""


def problem(kind: str, rank: int | None = 0, message: str = "m") -> Problem:
    return Problem(case="c", kind=kind, message=message, rank=rank)


def ended(rank: int, *kinds: str, **options: Any) -> RankEnd:
    """Return a rank that left a result with problems of these kinds."""
    found = [problem(kind, rank) for kind in kinds]
    return RankEnd(rank=rank, code=0, result=RankResult(problems=found, **options))


def judged(*ends: RankEnd) -> CaseResult:
    return judge("c", ends, seconds=1.0, deadline_s=20.0)


def kinds(result: CaseResult) -> list[str]:
    return [f.kind for f in result.problems]


def test_ranks_that_end_well_pass() -> None:
    """With the first rank's note and the largest error of all."""
    result = judged(
        ended(0, note="n", measured=Measured(error=0.1)),
        ended(1, note="other", measured=Measured(error=0.2)),
    )
    assert (result.status, result.note) == ("pass", "n")
    assert result.measured.error == 0.2


def test_ranks_at_the_deadline_hang() -> None:
    """The reason says where they stand, and the stacks are kept."""
    result = judged(RankEnd(rank=0), RankEnd(rank=1, stacks=STANDS))
    (found,) = result.problems
    assert found.message == (
        "not done after 20 s; rank 0: no Python code runs; rank 1: stands_still (hooks.py:7)"
    )
    assert found.status == "fail"
    assert result.kinds == {"hang"}
    assert "stands_still" in result.stacks


def test_a_rank_that_raises_is_the_cause_of_what_follows() -> None:
    """Of its peer's broken connection, of its crash, or of its waiting."""
    raising = ended(1, "hook_exception", raised_at=5.0)
    broken = ended(0, "exception", raised_at=5.1, consequence=True)
    crashed = RankEnd(rank=0, code=-signal.SIGABRT, ended_at=5.2)
    for other in (broken, crashed, RankEnd(rank=0)):
        result = judged(other, raising)
        assert [(f.kind, f.rank) for f in result.problems] == [("hook_exception", 1)]
        assert result.stacks == ""


def test_a_crash_before_all_else_is_the_cause() -> None:
    """Its signal, its last words and its place are told."""
    crash = RankEnd(
        rank=1,
        code=-signal.SIGSEGV,
        ended_at=4.0,
        stacks=f"{STANDS}\nExtension modules: a",
        output=WORDS,
    )
    result = judged(ended(0, "exception", raised_at=4.1, consequence=True), crash)
    (found,) = result.problems
    assert (found.kind, found.rank) == ("crash", 1)
    assert found.message == (
        "rank 1 was ended by SIGSEGV; its last words: pair.cc:456 too long; "
        "rank 1: stands_still (hooks.py:7)"
    )
    assert result.stacks == f"rank 1:\n{STANDS.strip()}"


def test_the_first_of_two_crashes_counts() -> None:
    """By time, not by rank."""
    ends = [RankEnd(rank=r, code=-signal.SIGABRT, ended_at=9.0 - r) for r in range(2)]
    assert [f.rank for f in judged(*ends).problems] == [1]


def test_an_exit_is_a_crash() -> None:
    """A hook has no business ending its process."""
    (found,) = judged(ended(0), RankEnd(rank=1, code=3)).problems
    assert found.message == "rank 1 ended with exit code 3"


def test_a_lost_connection_that_nobody_explains_is_told() -> None:
    """Rather than nothing."""
    ends = [ended(r, "exception", raised_at=5.0, consequence=True) for r in range(2)]
    assert kinds(judged(*ends)) == ["exception"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[pair.cc:537] Connection closed by peer [127.0.0.1]:1", True),
        ("Timed out waiting 5000ms for recv operation to complete", True),
        ("ValueError: boom", False),
    ],
)
def test_lost_connections_are_known_by_their_message(message: str, expected: bool) -> None:
    """That is all there is to know them by."""
    assert is_consequence(message) is expected


def test_findings_of_ranks_and_buckets_become_one_a_kind() -> None:
    """The lowest rank speaks; a rank is named only where not all saw it."""
    merged = merge(
        [problem("hang", 1, "one"), problem("hang", 0, "zero"), problem("precision", 1)], 2
    )
    assert [(f.kind, f.rank, f.message) for f in merged] == [
        ("hang", None, "zero"),
        ("precision", 1, "m"),
    ]


def test_a_named_sum_is_not_called_wrong_once_more() -> None:
    """``not_averaged`` says all that ``wrong_gradients`` could."""
    assert [f.kind for f in merge([problem("wrong_gradients"), problem("not_averaged")], 2)] == [
        "not_averaged"
    ]


def test_the_worst_finding_decides() -> None:
    """A case's and a result's; a kind that nobody knows warns."""
    warning = CaseResult(case="a", problems=(problem("of_tomorrow"),))
    failure = CaseResult(case="b", problems=(problem("precision"), problem("hang")))
    assert (warning.status, failure.status) == ("warn", "fail")
    assert CheckResult(hook="h", ranks=2, cases=(warning,)).verdict == "warn"
    assert CheckResult(hook="h", ranks=2, cases=(warning, failure)).verdict == "fail"
    skipped = CaseResult(case="c", skipped=True)
    assert skipped.status == "skip"
    assert CheckResult(hook="h", ranks=2, cases=(skipped,)).verdict == "pass"
