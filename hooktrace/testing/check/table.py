"""Reports as tables: one hook's cases, many hooks in one, and that as markdown."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .report import CaseResult, CheckReport, Finding

__all__ = ["as_markdown", "as_text", "print_overview", "print_report"]

_STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "skip": "dim"}
_WIDTH = 120
_MANY = 4
_SHORT = 160
_PREFIX = re.compile(r"^hook '.*?', bucket \d+, step \d+: (the hook raised in stage \w+: )?")


def print_report(console: Console, report: CheckReport, *, stacks: bool = True) -> None:
    """Print a hook's cases with the reasons, a line that sums up, and stacks where ranks hung."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("case", "", "s"):
        table.add_column(column, no_wrap=True, justify="right" if column == "s" else "left")
    table.add_column("what was found")
    for case, reasons in _reasons(report):
        style = _STYLES[case.status]
        seconds = "" if case.skipped else f"{case.seconds:.1f}"
        found = Text("\n".join([*reasons, case.note]).strip("\n"))
        table.add_row(case.case, Text(case.status, style=style), seconds, found)
    console.print(table)
    console.print(_summary(report), markup=False, soft_wrap=True)
    if stacks:
        for name, text in report.stacks.items():
            console.print(f"\nstacks, {name}:\n{text.strip()}", markup=False, soft_wrap=True)


def as_text(report: CheckReport) -> str:
    """Return what ``print_report`` prints, without colours."""
    console = Console(width=_WIDTH, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as captured:
        print_report(console, report)
    return captured.get()


def print_overview(console: Console, reports: Sequence[CheckReport]) -> None:
    """Print one line a finding of many hooks."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("hook", "verdict", "error", "of sum", "ratio"):
        table.add_column(column, no_wrap=column != "hook")
    table.add_column("what was found")
    for report in reports:
        verdict = Text(report.verdict, style=_STYLES[report.verdict])
        found = Text("\n".join(_in_short(report)))
        table.add_row(report.hook, verdict, _error(report), _of_sum(report), _ratio(report), found)
    console.print(table)


def as_markdown(reports: Sequence[CheckReport]) -> str:
    """Return the overview as a markdown table."""
    lines = [
        "| hook | verdict | error of a step | of their sum | ratio | what was found |",
        f"|{' --- |' * 6}",
    ]
    for report in reports:
        found = "; ".join(_in_short(report)).replace("|", "\\|")
        cells = (
            f"`{report.hook}`",
            report.verdict,
            _error(report),
            _of_sum(report),
            _ratio(report),
            found,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _reasons(report: CheckReport) -> Iterator[tuple[CaseResult, list[str]]]:
    """Yield each case with its findings in words; what was said before is not said again."""
    said: dict[str, str] = {}
    for case in report.cases:
        reasons = []
        for finding in case.findings:
            before = said.setdefault(_key(finding), case.case)
            named = finding.rank is None or finding.message.startswith("rank ")
            where = "" if named else f"rank {finding.rank}: "
            if before == case.case:
                reasons.append(f"{finding.kind}: {where}{finding.message}")
            else:
                reasons.append(f"{finding.kind}: as in {before!r}")
        yield case, reasons


def _in_short(report: CheckReport) -> list[str]:
    """Return a line for each different finding: its kind, the cases, and the beginning of why."""
    lines: dict[str, tuple[Finding, list[str]]] = {}
    for finding in report.findings:
        lines.setdefault(_key(finding), (finding, []))[1].append(finding.case)
    return [
        f"{finding.kind} ({_names(cases)}): {_short(finding)}" for finding, cases in lines.values()
    ]


def _names(cases: list[str]) -> str:
    return f"{len(cases)} cases" if len(cases) > _MANY else ", ".join(cases)


def _key(finding: Finding) -> str:
    """Return what findings have in common that say the same of different buckets and steps."""
    return f"{finding.kind} {re.sub(r'[0-9.e+-]+', '#', finding.message)}"


def _short(finding: Finding) -> str:
    """Return why without the remedy, or where the ranks stand."""
    said = _PREFIX.sub("", finding.message)
    if finding.kind not in ("hang", "crash"):
        said = said.partition("; ")[0]
    return textwrap.shorten(said, _SHORT, placeholder=" ...")


def _summary(report: CheckReport) -> str:
    cases = [case for case in report.cases if not case.skipped]
    counts = [
        f"{n} {word}"
        for status, word in (("fail", "failed"), ("warn", "warned"), ("pass", "passed"))
        if (n := sum(case.status == status for case in cases))
    ]
    facts = [f"{report.hook} on {_ranks(report.ranks)}: {report.verdict}", ", ".join(counts)]
    if report.measured.error is not None:
        facts.append(f"relative error of a step {_error(report)}, of their sum {_of_sum(report)}")
    if report.measured.ratio is not None:
        facts.append(f"compression {_ratio(report)}")
    return "; ".join(facts)


def _ranks(number: int) -> str:
    return f"{number} gloo rank{'' if number == 1 else 's'}"


def _error(report: CheckReport) -> str:
    return _number(report.measured.error, "exact", 2)


def _of_sum(report: CheckReport) -> str:
    return _number(report.measured.sum_error, "exact", 2)


def _ratio(report: CheckReport) -> str:
    return _number(report.measured.ratio, "", 3)


def _number(value: float | None, zero: str, digits: int) -> str:
    if value is None:
        return ""
    if math.isinf(value):
        return "nothing sent"
    return zero if value == 0 else f"{value:.{digits}g}"
