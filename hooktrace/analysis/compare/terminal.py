"""Comparisons in a terminal: the sentence, what is doubtful, then the tables that it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .comparison import BucketPair, Comparison, Difference, RunFacts, Unit
from .sentence import MINUS, break_even_text, share, signed, value, within

_MOST_BUCKETS = 12

_STYLES = {"differs": "bold", "not shown": "dim", "same": "dim", "unknown": "yellow"}
_APART = f"B {MINUS} A"
_UNITS = {"ns": "ms", "bytes": "MB"}


def print_comparisons(console: Console, found: Sequence[Comparison]) -> None:
    """Print comparisons with one first side; a name from the files is never taken as markup."""
    if len(found) > 1:
        for one in found:
            console.print(Text(one.sentence, style="bold"))
        console.print()
    for one in found:
        _print(console, one)


def _print(console: Console, one: Comparison) -> None:
    console.print(Text(one.sentence, style="bold"))
    for text in one.unlike:
        console.print(_item("·", Text(text, style="dim")))
    for text in (*one.doubts, *one.limits):
        console.print(_item("-", Text(text, style="yellow")))
    a, b = f"A, {one.a.name}", f"B, {one.b.name}"
    console.print(Text(f"\nA: {_runs(one, 'a')}\nB: {_runs(one, 'b')}", style="dim"))
    table = _table(["", "A", "B", _APART, "95 %", "of A", ""])
    table.title = f"Medians of a step: {a}; {b}"
    for quantity in one.quantities:
        unit = f"{quantity.title}, {_UNITS[quantity.unit]}" if quantity.unit in _UNITS else ""
        table.add_row(*_row(unit or quantity.title, quantity.difference, quantity.unit))
    console.print(table)
    if any(q.difference.verdict == "not shown" and q.difference.why for q in one.quantities):
        console.print(Text("drifts: halves of one run differ by more than the runs do", "dim"))
    for text in _why_unknown(one):
        console.print(Text(text, style="dim"))
    if one.step is not None:
        console.print(_parts(one, one.step))
    if one.pays_below_bytes_per_second is not None:
        console.print(Text(break_even_text(one), style="dim"))
    apart = [pair for pair in one.buckets if pair.exposed.difference != 0]
    if apart:
        console.print(_buckets(one, apart))


def _why_unknown(one: Comparison) -> Iterator[str]:
    """Yield why rows are unknown, each reason once."""
    titles: dict[str, list[str]] = {}
    for quantity in one.quantities:
        if quantity.difference.verdict == "unknown" and quantity.difference.why:
            titles.setdefault(quantity.difference.why, []).append(quantity.title)
    yield from (f"unknown: {', '.join(rows)}, because {why}" for why, rows in titles.items())


def _runs(one: Comparison, side: str) -> str:
    runs = getattr(one, side).runs
    return ", ".join(f"{r.name} ({r.hook}, {_count(r)}, {r.steps:,} steps)" for r in runs)


def _count(run: RunFacts) -> str:
    return "1 rank" if len(run.ranks) == 1 else f"{len(run.ranks)} ranks"


def _parts(one: Comparison, step: Difference) -> Table:
    table = _table(["ms", "A", "B", _APART, "95 %", "of A", ""])
    table.title = "What accounts for the step time: means of its middle half"
    for part in one.parts:
        table.add_row(*_row(part.title, part.difference, "ns"))
    table.add_section()
    table.add_row(*_row("step time", step, "ns"))
    return table


def _buckets(one: Comparison, apart: list[BucketPair]) -> Table:
    is_told = any(pair.stage is not None for pair in apart)
    noun = "unit" if one.is_of_units else "bucket"
    table = _table([noun, "A", "B", _APART, "95 %", "", "most of it" if is_told else ""])
    table.title = f"What each {noun} adds to the exposed time, ms"
    most = sorted(apart, key=lambda pair: -abs(pair.exposed.difference or 0.0))[:_MOST_BUCKETS]
    for pair in sorted(most, key=lambda pair: pair.a):
        stage = "" if pair.stage is None else f"{signed(pair.stage[1], 'ns')} {pair.stage[0]}"
        cells = _row(pair.title, pair.exposed, "ns")
        table.add_row(*cells[:5], cells[6], Text(stage, style="dim"))
    left = len(one.buckets) - len(most)
    if left:
        less = "differ less, or not at all," if len(apart) > len(most) else "do not differ"
        table.caption = f"{left} that {less} are left out"
    return table


def _table(names: list[str]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", title_justify="left",
                  title_style="bold", caption_justify="left")  # fmt: skip
    for i, name in enumerate(names):
        left = i == 0 or i >= len(names) - 1
        table.add_column(name, justify="left" if left else "right", no_wrap=i not in (0, 6))
    return table


def _row(title: str, found: Difference, unit: Unit) -> list[Text]:
    cells = [value(found.a, unit), value(found.b, unit), signed(found.difference, unit)]
    drifts = found.verdict == "not shown" and found.why is not None
    cells += [within(found, unit), share(found, unit), "drifts" if drifts else found.verdict]
    style = _STYLES[found.verdict]
    return [Text(title), *(Text(cell, style=style) for cell in cells)]


def _item(label: str, body: Text) -> Padding:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(label, body)
    return Padding(grid, (0, 0, 0, 1))
