"""``hooktrace check`` behind its options: checks them, runs, shows progress, prints tables."""

from __future__ import annotations

import math
import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...records.errors import UsageError
from .judge import CaseResult, CheckResult, Problem, Status
from .launch import check
from .spec import HookSpec

_STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "skip": "dim"}
_WIDTH = 120
_MANY = 4
_SHORT = 160
_PREFIX = re.compile(
    r"^hook '.*?', (bucket \d+|unit [^,]+), step \d+: (the hook raised in stage \w+: )?"
)


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
    """Check a hook, or all standard ones; returns 1 where anything failed, else 0.

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
    # A redirected table keeps its width, whatever the terminal that is not there would have.
    if not console.is_terminal:
        console.width = 160
    waiting = Console(stderr=True, highlight=False)
    with waiting.status("starting") as status:

        def seen(spec: HookSpec, result: CaseResult) -> None:
            status.update(f"{spec.name}, {result.case}: {result.status}")

        results = check(specs, ranks=ranks, timeout_s=timeout_s, cases=cases, seen=seen)
    if markdown:
        console.print(as_markdown(results), markup=False, soft_wrap=True)
    elif hook is None:
        print_overview(console, results)
    else:
        print_result(console, results[0])
    return 1 if any(result.failed for result in results) else 0


def print_result(console: Console, result: CheckResult) -> None:
    """Print a hook's cases with the reasons, a line that sums up, and stacks where ranks hung."""
    table = Table("case", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", "s"):
        table.add_column(column, no_wrap=True, justify="right" if column else "left")
    table.add_column("what was found")
    said: dict[str, str] = {}
    for case in result.cases:
        reasons = [_reason(problem, said) for problem in case.problems]
        seconds = "" if case.skipped else f"{case.seconds:.1f}"
        found = Text("\n".join([*reasons, case.note]).strip("\n"))
        table.add_row(Text(case.case, no_wrap=True), _coloured(case.status), seconds, found)
    console.print(table)
    console.print(_summary(result), markup=False, soft_wrap=True)
    for case in result.cases:
        if case.stacks:
            text = f"\nstacks, {case.case}:\n{case.stacks.strip()}"
            console.print(text, markup=False, soft_wrap=True)


def as_text(result: CheckResult) -> str:
    """Return what ``print_result`` prints, without colours."""
    console = Console(width=_WIDTH, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as captured:
        print_result(console, result)
    return captured.get()


def print_overview(console: Console, results: Sequence[CheckResult]) -> None:
    """Print one line a problem of many hooks."""
    table = Table("hook", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("verdict", "error", "of sum", "ratio"):
        table.add_column(column, no_wrap=True)
    table.add_column("what was found")
    for result in results:
        found = Text("\n".join(_in_short(result)))
        table.add_row(result.hook, _coloured(result.verdict), *_numbers(result), found)
    console.print(table)


def as_markdown(results: Sequence[CheckResult]) -> str:
    """Return the overview as a markdown table."""
    head = ("hook", "verdict", "error of a step", "of their sum", "ratio", "what was found")
    rows = [head, ("---",) * len(head)]
    for result in results:
        found = "; ".join(_in_short(result)).replace("|", "\\|")
        rows.append((f"`{result.hook}`", result.verdict, *_numbers(result), found))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _coloured(status: Status) -> Text:
    return Text(status, style=_STYLES[status])


def _reason(problem: Problem, said: dict[str, str]) -> str:
    """Return a problem in words; ``said``: in which case one like it was said before."""
    before = said.setdefault(_key(problem), problem.case)
    if before != problem.case:
        return f"{problem.kind}: as in {before!r}"
    is_named = problem.rank is None or problem.message.startswith("rank ")
    return f"{problem.kind}: {'' if is_named else f'rank {problem.rank}: '}{problem.message}"


def _in_short(result: CheckResult) -> list[str]:
    """Return a line for each different problem: its kind, the cases, and the beginning of why."""
    alike: dict[str, list[Problem]] = {}
    for problem in result.problems:
        alike.setdefault(_key(problem), []).append(problem)
    lines = []
    for first, *others in alike.values():
        cases = [problem.case for problem in (first, *others)]
        where = f"{len(cases)} cases" if len(cases) > _MANY else ", ".join(cases)
        lines.append(f"{first.kind} ({where}): {_short(first)}")
    return lines


def _key(problem: Problem) -> str:
    """Return what problems have in common that say the same of different buckets and steps."""
    return f"{problem.kind} {re.sub(r'[0-9.e+-]+', '#', problem.message)}"


def _short(problem: Problem) -> str:
    """Return why without the remedy, or where the ranks stand."""
    said = _PREFIX.sub("", problem.message)
    if problem.kind not in ("hang", "crash"):
        said = said.partition("; ")[0]
    return textwrap.shorten(said, _SHORT, placeholder=" ...")


def _summary(result: CheckResult) -> str:
    statuses = Counter(case.status for case in result.cases)
    words: dict[Status, str] = {"fail": "failed", "warn": "warned", "pass": "passed"}
    ranks = f"{result.ranks} gloo rank{'' if result.ranks == 1 else 's'}"
    counts = [f"{statuses[key]} {word}" for key, word in words.items() if statuses[key]]
    facts = [f"{result.hook} on {ranks}: {result.verdict}", ", ".join(counts)]
    error, of_sum, ratio = _numbers(result)
    if error:
        facts.append(f"relative error of a step {error}" + (of_sum and f", of their sum {of_sum}"))
    if ratio:
        facts.append(f"compression {ratio}")
    return "; ".join(facts)


def _numbers(result: CheckResult) -> tuple[str, str, str]:
    """Return a step's error, that of the steps' sum, and the compression, as words."""
    found = result.measured
    return (
        _number(found.error, "exact", 2),
        _number(found.sum_error, "exact", 2),
        _number(found.ratio, "", 3),
    )


def _number(value: float | None, zero: str, digits: int) -> str:
    if value is None:
        return ""
    if math.isinf(value):
        return "nothing sent"
    return zero if value == 0 else f"{value:.{digits}g}"
