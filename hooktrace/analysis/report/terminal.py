"""The report in a terminal: findings first, then the tables that they rest on."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...records.units import bandwidth, mb, ms, percent
from .facts import Finding, ModelFacts
from .run_report import ModelReport, RunReport
from .tables import bucket_columns, rank_columns

_MOST_RANKS = 16


def print_report(console: Console, report: RunReport) -> None:
    """Print a report; a name from the files is never taken as markup."""
    console.print(Text(report.headline, style="bold"))
    for model in report.models:
        _print_model(console, model)
    _print_findings(console, report.findings)
    if report.missing:
        console.print()
        console.print(Text("What is missing", style="bold"))
        for line in report.missing:
            console.print(_item("-", Text(line, style="yellow")))


def _print_model(console: Console, model: ModelReport) -> None:
    facts = model.facts
    console.print()
    console.print(Text.assemble((facts.model, "bold"), f": {_described(facts)}"))
    _print_findings(console, model.findings)
    console.print()
    console.print(_bucket_table(facts))
    console.print()
    console.print(_rank_table(facts))


def _described(model: ModelFacts) -> str:
    """Return what a model's steps are like, in a line."""
    period = model.period.p50 if model.period else None
    parts = [
        f"{model.hook}, {model.steps} steps of {ms(period)}",
        f"{ms(model.exposed.p50 if model.exposed else None)} exposed",
        f"overlap {percent(model.overlap)}",
        f"{mb(model.wire_bytes)} sent of {mb(model.gradient_bytes)}",
        f"busbw {bandwidth(model.busbw_bytes_per_second)}",
    ]
    return ", ".join(parts)


def _print_findings(console: Console, found: list[Finding]) -> None:
    if not found:
        return
    console.print()
    console.print(Text("Findings, by what each step would gain at most", style="bold"))
    for one in found:
        if one.is_wrong:
            label = Text("wrong", style="bold red")
        elif one.gain_ns is None:
            label = Text("-")
        else:
            label = Text(ms(one.gain_ns), style="bold green")
        lines: list[RenderableType] = [Text(one.sentence)]
        lines += [Text(f"· {text}", style="dim") for text in one.evidence]
        if one.remedy:
            lines.append(Text(f"→ {one.remedy}", style="cyan"))
        console.print(_item(label, Group(*lines), width=9))
    console.print(
        Text("Gains are upper bounds and overlap: they do not add up.", style="dim italic")
    )


def _item(label: Text | str, body: RenderableType, *, width: int = 1) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=width, justify="right", no_wrap=True)
    grid.add_column()
    grid.add_row(label, body)
    return Padding(grid, (0, 0, 0, 1))


def _table(title: str, caption: str, headings: list[str]) -> Table:
    table = Table(
        title=title, caption=caption, box=None, padding=(0, 1, 0, 0), header_style="bold",
        title_justify="left", caption_justify="left", title_style="bold",
    )  # fmt: skip
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


_SHORT = {"gradients": "grad", "compress": "comp", "decompress": "decomp"}
_LEFT_OUT = {"ready"}
"""Columns for which a terminal has no room."""


def _bucket_table(model: ModelFacts) -> Table:
    columns = bucket_columns(model)
    shown = [i for i, name in enumerate(columns.names) if name not in _LEFT_OUT]
    table = _table(
        f"Buckets: medians over {len(model.ranks)} ranks, {model.clock} times",
        "sizes in MB, times in ms; wait: the part of wire until the last rank is there; tail: "
        "share of what is exposed; busbw (nccl-tests) in MB/s; error: relative L2",
        [_SHORT.get(columns.names[i], columns.names[i]) for i in shown],
    )
    for row in columns.rows:
        table.add_row(*(row[i] for i in shown))
    return table


def _rank_table(model: ModelFacts) -> Table:
    shown = sorted(model.ranks, key=lambda r: -(r.lag_ns or 0.0))[:_MOST_RANKS]
    left = len(model.ranks) - len(shown)
    caption = "medians; lag: of the last bucket after the first rank, where clocks are known"
    if left:
        caption += f"; the {left} ranks with the least lag are left out"
    columns = rank_columns(sorted(shown, key=lambda r: r.rank))
    table = _table("Ranks, times in ms", caption, columns.names)
    for row in columns.rows:
        table.add_row(*map(Text, row))
    return table
