"""Reports as text and as markdown."""

from __future__ import annotations

from hooktrace.testing.check.command import as_markdown, as_text
from hooktrace.testing.check.result import CaseResult, CheckResult, Measured, Problem


def problem(case: str, kind: str, message: str, rank: int | None = None) -> Problem:
    return Problem(case=case, kind=kind, message=message, rank=rank)


SUM = "the sum is not divided: gradients weigh {} (each rank its own); divide"
RESULT = CheckResult(
    hook="pkg:h",
    ranks=2,
    cases=[
        CaseResult(
            case="many",
            problems=[problem("many", "not_averaged", SUM.format(2))],
            measured=Measured(error=0.0123, sum_error=0.0, ratio=4.0),
            stacks="Thread 0x1",
        ),
        CaseResult(case="odd", problems=[problem("odd", "not_averaged", SUM.format(2.01))]),
        CaseResult(case="nan", problems=[problem("nan", "nan_hidden", "hidden | look", 1)]),
        CaseResult(case="end", problems=[problem("end", "nan_hidden", "at the end: look", 1)]),
        CaseResult(case="join", note="said", seconds=1.25),
    ],
)


def test_a_report_says_everything_once() -> None:
    """What a case shares with one before it is named, not repeated; stacks come last."""
    lines = [line.rstrip() for line in as_text(RESULT).splitlines()]
    text = "\n".join(lines)
    assert f" many   fail   0.0   not_averaged: {SUM.format(2)}" in text
    assert " odd    fail   0.0   not_averaged: as in 'many'" in text
    assert " nan    warn   0.0   nan_hidden: rank 1: hidden | look" in text
    assert " end    warn   0.0   nan_hidden: rank 1: at the end: look" in text
    assert " join   pass   1.2   said" in text
    assert (
        "pkg:h on 2 gloo ranks: fail; 2 failed, 2 warned, 1 passed; relative error of a step "
        "0.012, of their sum exact; compression 4"
    ) in lines
    assert lines[-1] == "Thread 0x1"


def test_an_overview_is_a_row_a_hook() -> None:
    """Each kind of problem with its cases."""
    row = as_markdown([RESULT]).splitlines()[-1]
    assert row == (
        "| `pkg:h` | fail | 0.012 | exact | 4 | not_averaged (many, odd): the sum is "
        "not divided: gradients weigh 2 (each rank its own); nan_hidden (nan, end): hidden "
        "\\| look |"
    )
