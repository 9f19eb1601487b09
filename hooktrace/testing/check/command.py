"""``hooktrace check`` behind its options: checks them, runs, shows progress, prints tables."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...records.errors import UsageError
from .launch import check
from .result import CaseResult, CheckResult, Status
from .spec import HookSpec

_STYLES = {"pass": "green", "warn": "yellow", "fail": "red"}
_WORDS: dict[Status, str] = {"fail": "failed", "warn": "warned", "pass": "passed"}
_HEAD = ("hook", "verdict", "error of a step", "of their sum", "ratio", "what was found")
_WIDTH = 120
_REDIRECTED_WIDTH = 160


def run(
    hook: str | None,
    state: str | None,
    *,
    standard: bool,
    ranks: int,
    local: bool,
    timeout_s: float,
    cases: list[str],
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
    if hook is None:
        console.print(_table(_HEAD, map(_row, results)))
    else:
        print_result(console, results[0])
    return 1 if any(result.failed for result in results) else 0


def print_result(console: Console, result: CheckResult) -> None:
    """Print a hook's cases with the reasons, a line that sums up, and stacks of ranks that hung.

    What an earlier case has found in the same words, but for its numbers, is not told again.
    """
    rows = []
    told: dict[tuple[str, str], str] = {}
    for case in result.cases:
        lines = []
        for problem in case.problems:
            said = problem.message
            if problem.rank is not None and not said.startswith("rank "):
                said = f"rank {problem.rank}: {said}"
            first = told.setdefault((problem.kind, problem.message.partition(":")[0]), case.case)
            lines.append(f"{problem.kind}: {said if first == case.case else f'as in {first!r}'}")
        found = "\n".join([*lines, *filter(None, [case.note])])
        rows.append((case.case, case.status, f"{case.seconds:.1f}", found))
    console.print(_table(("case", "", "s", "what was found"), rows))
    statuses = Counter(case.status for case in result.cases)
    error, of_sum, ratio = _numbers(result)
    facts = [
        f"{result.hook} on {result.ranks} gloo rank{'s' * (result.ranks > 1)}: {result.verdict}",
        ", ".join(f"{statuses[key]} {word}" for key, word in _WORDS.items() if key in statuses),
        error and f"relative error of a step {error}, of their sum {of_sum}",
        ratio and f"compression {ratio}",
    ]
    stacks = [f"\nstacks, {case.case}:\n{case.stacks}" for case in result.cases if case.stacks]
    text = "\n".join(["; ".join(filter(None, facts)), *stacks])
    console.print(text, markup=False, soft_wrap=True)


def as_text(result: CheckResult) -> str:
    """Return what ``print_result`` prints, without colours."""
    console = Console(width=_WIDTH, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as captured:
        print_result(console, result)
    return captured.get()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table for a terminal; the second column is a status."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in head:
        table.add_column(column, no_wrap=column not in (_HEAD[0], _HEAD[-1]))
    for name, status, *others in rows:
        table.add_row(Text(name), Text(status, style=_STYLES[status]), *map(Text, others))
    return table


def _row(result: CheckResult) -> tuple[str, ...]:
    """Return a hook's row: the numbers, and a line a kind of problem with the first message."""
    cases: dict[str, list[str]] = {}
    said: dict[str, str] = {}
    for problem in result.problems:
        cases.setdefault(problem.kind, []).append(problem.case)
        said.setdefault(problem.kind, problem.message.partition("; ")[0])
    lines = [f"{kind} ({', '.join(cases[kind])}): {what}" for kind, what in said.items()]
    return result.hook, result.verdict, *_numbers(result), "\n".join(lines)


def _numbers(result: CheckResult) -> list[str]:
    """Return a step's error, that of the steps' sum, and the compression, as words."""
    found = result.measured
    words = [
        "" if error is None else f"{error:.2g}" if error else "exact"
        for error in (found.error, found.sum_error)
    ]
    ratio = "" if found.ratio is None else f"{found.ratio:.3g}"
    return [*words, ratio]
