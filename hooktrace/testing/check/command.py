"""``hooktrace check`` behind its options: checks them, runs, shows progress, prints tables."""

from __future__ import annotations

import math
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...records.errors import UsageError
from .launch import check
from .result import CaseResult, CheckResult, Problem, Status
from .spec import HookSpec

_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}
_WORDS: dict[Status, str] = {"fail": "failed", "warn": "warned", "pass": "passed"}
_HEAD = ("hook", "verdict", "error of a step", "of their sum", "ratio", "what was found")
_WIDTH = 120
_REDIRECTED_WIDTH = 160
_MANY = 4
_SHORT = 160


def run(
    hook: str | None,
    state: str | None,
    *,
    standard: bool,
    ranks: int,
    local: bool,
    timeout_s: float,
    cases: list[str],
    markdown: bool,
) -> int:
    """Check a hook, or all standard ones; returns 1 if anything failed, else 0.

    Raises ``UsageError`` for what cannot be checked.
    """
    if standard == (hook is not None):
        raise UsageError("pass a hook as package.module:attribute, or --standard for all of them")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if hook is None:
        from .standard import standard_hooks

        specs = standard_hooks()
    else:
        specs = [HookSpec.of(hook, state, local=local)]
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _REDIRECTED_WIDTH
    with Console(stderr=True, highlight=False).status("starting") as status:

        def seen(spec: HookSpec, result: CaseResult) -> None:
            status.update(f"{spec.name}, {result.case}: {result.status}")

        results = check(specs, ranks=ranks, timeout_s=timeout_s, cases=cases, seen=seen)
    if markdown:
        console.print(as_markdown(results), markup=False, soft_wrap=True)
    elif hook is None:
        console.print(_table(_HEAD, [_row(result) for result in results]))
    else:
        print_result(console, results[0])
    return 1 if any(result.failed for result in results) else 0


def print_result(console: Console, result: CheckResult) -> None:
    """Print a hook's cases with the reasons, a line that sums up, and stacks of ranks that hung."""
    rows = []
    for case in result.cases:
        found = "\n".join([*_reasons(result, case), *filter(None, [case.note])])
        rows.append((case.case, case.status, f"{case.seconds:.1f}", found))
    console.print(_table(("case", "", "s", "what was found"), rows))
    lines = [_summary(result)]
    lines += [f"\nstacks, {case.case}:\n{case.stacks}" for case in result.cases if case.stacks]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def as_text(result: CheckResult) -> str:
    """Return what ``print_result`` prints, without colours."""
    console = Console(width=_WIDTH, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as captured:
        print_result(console, result)
    return captured.get()


def as_markdown(results: Sequence[CheckResult]) -> str:
    """Return a markdown table with a row a hook."""
    rows = [_HEAD, ("---",) * len(_HEAD)]
    for name, *others, found in map(_row, results):
        rows.append((f"`{name}`", *others, found.replace("\n", "; ").replace("|", "\\|")))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table for a terminal; the second column is a status."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in head:
        table.add_column(column, no_wrap=column not in (_HEAD[0], _HEAD[-1]))
    for name, status, *others in rows:
        table.add_row(Text(name), Text(status, style=_STYLES[status]), *map(Text, others))
    return table


def _reasons(result: CheckResult, case: CaseResult) -> Iterator[str]:
    """Yield a case's problems in words; one that an earlier case has too is not told again."""
    for problem in case.problems:
        first = next(other for other in result.problems if _is_like(other, problem))
        is_named = problem.rank is None or problem.message.startswith("rank ")
        said = f"{'' if is_named else f'rank {problem.rank}: '}{problem.message}"
        yield f"{problem.kind}: {said if first.case == case.case else f'as in {first.case!r}'}"


def _is_like(one: Problem, other: Problem) -> bool:
    """Return whether both say the same, but for their numbers."""
    begin = other.message.partition(":")[0]
    return one.kind == other.kind and one.message.partition(":")[0] == begin


def _row(result: CheckResult) -> tuple[str, ...]:
    """Return a hook's row: the numbers, and a line a kind of problem with the first message."""
    lines = []
    for kind in dict.fromkeys(problem.kind for problem in result.problems):
        alike = [problem for problem in result.problems if problem.kind == kind]
        cases = [problem.case for problem in alike]
        where = f"{len(cases)} cases" if len(cases) > _MANY else ", ".join(cases)
        what, _, _ = alike[0].message.partition("; ")
        lines.append(f"{kind} ({where}): {textwrap.shorten(what, _SHORT, placeholder=' ...')}")
    return result.hook, result.verdict, *_numbers(result), "\n".join(lines)


def _summary(result: CheckResult) -> str:
    statuses = Counter(case.status for case in result.cases)
    ranks = f"{result.ranks} gloo rank{'' if result.ranks == 1 else 's'}"
    counts = [f"{statuses[key]} {word}" for key, word in _WORDS.items() if statuses[key]]
    facts = [f"{result.hook} on {ranks}: {result.verdict}", ", ".join(counts)]
    error, of_sum, ratio = _numbers(result)
    if error:
        facts.append(f"relative error of a step {error}, of their sum {of_sum}")
    if ratio:
        facts.append(f"compression {ratio}")
    return "; ".join(facts)


def _numbers(result: CheckResult) -> list[str]:
    """Return a step's error, that of the steps' sum, and the compression, as words."""
    found = result.measured
    return [
        _number(found.error, "exact", 2),
        _number(found.sum_error, "exact", 2),
        _number(found.ratio, "", 3),
    ]


def _number(value: float | None, zero: str, digits: int) -> str:
    if value is None:
        return ""
    if math.isinf(value):
        return "nothing sent"
    return zero if value == 0 else f"{value:.{digits}g}"
