"""The report in a terminal: findings first, then the tables that they rest on."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...records.units import bandwidth, mb, ms, percent
from .facts import Finding, ModelFacts
from .provenance import model_lines, run_lines
from .rules_compression import hook_lines
from .run_report import ModelReport, RunReport
from .tables import (
    LONGEST,
    Columns,
    about_busbw,
    about_kinds,
    about_small,
    about_units,
    about_waits,
    bucket_columns,
    kind_columns,
    rank_columns,
    split_buckets,
    unit_columns,
)
from .units import are_alike, payload_bytes

_MOST_RANKS = 16


def print_report(console: Console, report: RunReport) -> None:
    """Print a report; a name from the files is never taken as markup."""
    console.print(Text(report.headline, style="bold"))
    _print_lines(console, run_lines(report.source))
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
    said = [
        f"{facts.hook}, {facts.steps} steps of {ms(facts.period.p50 if facts.period else None)}",
        f"{ms(facts.exposed.p50 if facts.exposed else None)} exposed",
        f"overlap {percent(facts.overlap)}",
        _sent(facts),
    ]
    if facts.busbw_bytes_per_second is not None:
        least = "" if facts.wait_unknown is None else "at least "
        said.append(f"busbw {least}{bandwidth(facts.busbw_bytes_per_second)}")
    console.print()
    console.print(Text.assemble((facts.model, "bold"), f": {', '.join(said)}"))
    _print_lines(console, [*model_lines(model.source), *hook_lines(facts)])
    _print_findings(console, [one for one in model.findings if not one.is_small])
    _print_small(console, model)
    tables = [_bucket_table(facts), _rank_table(facts)]
    if facts.is_sharded:
        tables = [_kind_table(facts), _unit_table(facts), _rank_table(facts)]
    for table in tables:
        console.print()
        console.print(table)


def _sent(facts: ModelFacts) -> str:
    """Return what a step sends, in words."""
    if not facts.is_sharded:
        return f"{mb(facts.wire_bytes)} sent of {mb(facts.gradient_bytes)}"
    gathered, reduced = (mb(payload_bytes(facts, gathered=of)) for of in (True, False))
    text = f"a rank gives {gathered} of parameters to gathers, {reduced} of gradients to reductions"
    sent, given = facts.wire_bytes, facts.gradient_bytes
    if sent is not None and abs(sent - given) > 0.01 * given:  # a unit of one number sends more
        text += f", all of it sent as {mb(sent)}"
    return text


def _print_lines(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, text in lines:
        grid.add_row(Text(name), Text(text))
    console.print(Padding(grid, (0, 0, 0, 1)))


def _print_findings(console: Console, found: list[Finding]) -> None:
    if not found:
        return
    console.print()
    console.print(Text("Findings, by what each step would gain at most", style="bold"))
    for one in found:
        if one.rule == "ranks_hung":
            label = Text("hang", style="bold red" if one.is_wrong else "bold yellow")
        elif one.is_wrong:
            label = Text("wrong", style="bold red")
        elif one.gain_ns is None:
            label = Text("-")
        else:
            label = Text(ms(one.gain_ns), style="bold green")
        lines: list[RenderableType] = [Text(one.sentence)]
        lines += [Text(f"· {text}", style="dim") for text in one.evidence]
        if remedy := f"{one.remedy} {one.lossy_remedy}".strip():
            lines.append(Text(f"→ {remedy}", style="cyan"))
        console.print(_item(label, Group(*lines), width=9))
    console.print(
        Text("Gains are upper bounds and overlap: they do not add up.", style="dim italic")
    )


def _print_small(console: Console, model: ModelReport) -> None:
    small = [one for one in model.findings if one.is_small]
    if small:
        console.print()
        console.print(Text(f"Small: {about_small(model.facts)}", style="bold"))
    for one in small:
        said = f"{one.sentence} {one.remedy}".strip()
        console.print(_item(Text(ms(one.gain_ns), style="dim"), Text(said, style="dim"), width=9))


def _item(label: Text | str, body: RenderableType, *, width: int = 1) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=width, justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(label, body)
    return Padding(grid, (0, 0, 0, 1))


_SHORT = {
    "gradients": "grad",
    "compress": "comp",
    "decompress": "decomp",
    "all-gather (forward)": "gather fwd",
    "all-gather (backward)": "gather bwd",
}
_SHORT_NAME = 14
"""Letters of a unit's name beside what a hook does."""
_LEFT_OUT = {"ready", "waits for"}
"""Columns for which a terminal has no room."""
_LEFT_OUT_OF_UNITS = {"p95", "waits for", "sent", "error"}
"""The same of units, but that what a hook does is shown where there is one."""


def _table(
    title: str, caption: str, columns: Columns, left_out: Collection[str] = _LEFT_OUT
) -> Table:
    table = Table(
        title=title, caption=caption, box=None, padding=(0, 1, 0, 0), header_style="bold",
        title_justify="left", caption_justify="left", title_style="bold",
    )  # fmt: skip
    shown = [i for i, name in enumerate(columns.names) if name not in left_out]
    for i in shown:
        name = columns.names[i]
        justify: JustifyMethod = "left" if name in ("unit", "collective") else "right"
        table.add_column(_short(name), justify=justify, no_wrap=True)
    for row in columns.rows:
        table.add_row(*(Text(_short(row[i])) for i in shown))
    return table


def _short(text: str) -> str:
    what, again, turn = text.partition(" #")
    return _SHORT.get(what, what) + again + turn


def _of_what(model: ModelFacts) -> str:
    ranks = f"{len(model.ranks)} ranks" if len(model.ranks) > 1 else "1 rank"
    return f"medians of {model.bucket_steps:,} steps on {ranks}, {model.clock} times"


def _bucket_table(model: ModelFacts) -> Table:
    return _table(
        f"Buckets: {_of_what(model)}",
        f"sizes in MB, times in ms; {about_waits(model, named=False)}; tail: share of what is "
        f"exposed; {about_busbw(model)}; error: relative L2",
        bucket_columns(model),
    )


def _kind_table(model: ModelFacts) -> Table:
    return _table("Collectives of a step, by kind", about_kinds(), kind_columns(model))


def _unit_table(model: ModelFacts) -> Table:
    shown, folded = split_buckets(model)
    sends_other = any(b.wire_bytes != b.gradient_bytes for b in model.buckets)
    kept = {"sent"} if sends_other else set()
    kept |= {"error"} if any(b.error for b in model.buckets) else set()
    # Of a hook the line says what it sends, takes and loses; the page has all columns.
    left_out = _LEFT_OUT_OF_UNITS - kept | ({"busbw", "no."} if sends_other else set())
    if all(b.exposed and b.duration and b.exposed.p50 == b.duration.p50 for b in model.buckets):
        left_out |= {"time"}
    if not are_alike(model):
        left_out |= {"busbw"}
    caption = about_units(model, left_out)
    if folded:
        caption += f"; {len(folded)} that cost, wait and err less are left out"
    return _table(
        f"Units: {_of_what(model)}",
        caption,
        unit_columns(model, shown, _SHORT_NAME if sends_other else LONGEST),
        left_out,
    )


def _rank_table(model: ModelFacts) -> Table:
    shown = sorted(model.ranks, key=lambda r: -(r.lag_ns or 0.0))[:_MOST_RANKS]
    left = len(model.ranks) - len(shown)
    where = "at the unit where it is largest" if model.is_sharded else "of the last bucket"
    where += ", by the host's calls," if model.clock == "device" else ""
    caption = f"medians; lag: {where} after the first rank, where clocks are known"
    if left:
        caption += f"; the {left} ranks with the least lag are left out"
    columns = rank_columns(sorted(shown, key=lambda r: r.rank))
    return _table("Ranks, times in ms", caption, columns)
