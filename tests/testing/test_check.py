"""What a check makes of how ranks ended, its report, and what cannot be checked.

On real ranks: distributed/test_check.py.  What is right and wrong: check/test_oracles.py.
"""

from __future__ import annotations

from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from hooktrace.fsdp.hooks import ScatterHook
from hooktrace.records import Transfer
from hooktrace.records.errors import UsageError
from hooktrace.testing.check import check_hook
from hooktrace.testing.check.host import judge
from hooktrace.testing.check.launch import check
from hooktrace.testing.check.oracles import explained
from hooktrace.testing.check.rank import Context
from hooktrace.testing.check.result import CaseResult, CheckResult, Problem
from hooktrace.testing.check.runs import Run
from hooktrace.testing.check.spec import HookSpec
from hooktrace.testing.check.wire import WireFormat
from hooktrace.testing.ranks import RankError

WORDS = "terminate called: [enforce fail at pair.cc:456] too long\nFatal Python error: Aborted\n"
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


@pytest.mark.parametrize(
    ("results", "ended", "expected"),
    [
        ((rank(0), rank(1)), None, []),
        # A rank is named only if not all saw it.
        ((rank(0, "a"), rank(1, "a")), None, [("a", None)]),
        ((rank(0), rank(1, "a")), None, [("a", 1)]),
        # What each rank got is compared here.
        ((rank(0, "a", bits=ONE), rank(1, bits=OTHER)), None, [("replicas_diverge", None)]),
        # A later error is explained by the connection that the first one lost.
        ((rank(0, "b", raised_at=6.1), rank(1, "a", raised_at=5.0)), RAISED, [("a", 1)]),
        ((None, rank(1, "a", raised_at=5.0)), RAISED, [("a", 1)]),
        ((rank(0, "a", raised_at=6.1), rank(1, "a", raised_at=5.0)), RAISED, [("a", 1)]),
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


def test_ranks_without_a_result_hang_or_crashed() -> None:
    """With their last words, and not what the others made of it."""
    hung = judged(None, None, ended=TimeoutError(), said="thread 1\n")
    assert (hung.status, hung.stacks) == ("fail", "rank 1:\nthread 1\n")
    ended = RankError(1, "killed by SIGABRT", Path())
    crashed = judged(rank(0, "exception", raised_at=4.1), None, ended=ended, said=WORDS)
    assert crashed.stacks == WORDS
    problems = (*hung.problems, *crashed.problems)
    assert [(f.kind, f.rank, f.message.partition("; look")[0]) for f in problems] == [
        ("hang", None, "not done after 20 s on ranks 0, 1"),
        ("crash", 1, "killed by SIGABRT"),
    ]


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_16_bits_lose_of_gradients_that_cancel_is_explained(
    dtype: torch.dtype, ranks: int
) -> None:
    """Rounding is of each rank's own value, however small the average of all is."""

    def call(place: int, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[Transfer]]:
        given = rows.view(ranks, ranks, -1)[:, place]
        return reduce(torch.add, (given / ranks).to(dtype)).float(), given, []

    for place, part in product(range(ranks), (1, 2)):
        reduced = partial(call, place)
        run = Run(reduced, "each", ((part,),) * ranks, (part,), ranks, float(ranks))
        run.play(("ordinary", 6))
        run.wire = WireFormat(2, str(dtype).removeprefix("torch."), 16.0)
        assert explained(run, [run]) is None


SUM = "the sum is not divided: gradients weigh {} (each rank its own); divide"


def failing(case: str, kind: str, message: str, rank: int | None = None) -> CaseResult:
    problem = Problem(case=case, kind=kind, message=message, rank=rank)
    return CaseResult(case=case, problems=[problem], stacks="Thread 0x1" * (case == "many"))


RESULT = CheckResult(
    hook="pkg:h",
    ranks=2,
    cases=[
        failing("many", "not_averaged", SUM.format(2)),
        failing("odd", "not_averaged", SUM.format(2.01)),
        failing("nan", "nan_hidden", "hidden | look", 1),
        CaseResult(case="join", note="said", seconds=1.25),
    ],
)


def test_a_report_says_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a case shares with one before it is named, not repeated; stacks come last."""
    monkeypatch.setenv("COLUMNS", "140")
    lines = [line.rstrip() for line in str(RESULT).splitlines()]
    text = "\n".join(lines)
    assert f" many           fail    0.0   not_averaged: {SUM.format(2)}" in text
    assert " odd            fail    0.0   not_averaged: as in 'many'" in text
    assert " nan            warn    0.0   nan_hidden: rank 1: hidden | look" in text
    assert " join           pass    1.2   said" in text
    assert "pkg:h on 2 gloo ranks: fail (2 fail, 1 warn, 1 pass)" in lines
    assert lines[-1] == "Thread 0x1"


def of_group(group: Any) -> Any:
    return ("state", group)


def of_nothing(group: Any = None) -> Any:
    return ("state", group)


class Scatter(ScatterHook):
    """Needs an argument."""

    def __init__(self, chunk: int) -> None:
        self.chunk = chunk


HOOKS = "tests.distributed.check_hooks"
AVERAGES = HookSpec(name="h", hook=f"{HOOKS}:averages")


@pytest.mark.parametrize(("name", "group"), [("of_group", "group"), ("of_nothing", None)])
def test_a_state_gets_the_group_where_it_asks_for_one(name: str, group: str | None) -> None:
    """A class such as PowerSGDState, or a function without arguments."""
    spec = HookSpec(name="h", hook="hooktrace.hooks:noop_hook", make_state=f"{__name__}:{name}")
    loaded = spec.load()
    assert (loaded.new_state("group"), loaded.local) == (("state", group), True)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (lambda: HookSpec(name="h", hook="no.such:hook").load(),
         r"no.such:hook could not be loaded .*run from its directory, or install it"),
        (lambda: HookSpec(name="h", hook=f"{HOOKS}:not_callable").load(),
         r"not_callable is a int and no hook; .*takes \(state, bucket\)"),
        (lambda: HookSpec(name="h", hook=AVERAGES.hook, make_state=f"{HOOKS}:not_callable").load(),
         r"is a int and no state; .* needs its own$"),
        (lambda: HookSpec(name="h", hook=f"{__name__}:Scatter").load(),
         r"Scatter could not be loaded \(TypeError: .*'chunk'\); .* makes one without arguments$"),
        (lambda: check_hook(f"{HOOKS}.averages"), r"write package\.module:attribute"),
        (lambda: check_hook(lambda state, bucket: None),
         r"pass its name as 'package\.module:attribute'"),
        (lambda: check(AVERAGES, ranks=0), "pass 1 or more"),
        (lambda: check(AVERAGES, timeout_s=0.0), "pass a timeout above 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_checked_is_told_with_a_fix(asked: Any, error: str) -> None:
    """Before any process starts, and what is imported in the process of the ranks."""
    with pytest.raises((UsageError, TypeError), match=error):
        asked()
