"""A document in a terminal: nodes one after another, tables as wide as there is room.

Names from files are never taken as markup.  Pictures are left to pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text as Line

from .tree import Code, Findings, Heading, Items, Node, Pairs, Table, Text, Tiles, Tone

_STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "soft": "dim",
    "warn": "yellow",
    "wrong": "bold red",
    "good": "bold green",
}
_SHORT = {
    "gradients": "grad",
    "compress": "comp",
    "decompress": "decomp",
    "serialization_wait": "serial",
    "future_wait": "future",
    "all-gather (forward)": "gather fwd",
    "all-gather (backward)": "gather bwd",
}
_LEAST_NAME = 14
"""Letters to which a name is cut before a column is left out; its last ones tell most."""
_LABEL = 9


def show(console: Console, document: Iterable[Node]) -> None:
    """Print a document, without spaces at the ends of its lines."""
    with console.capture() as shown:
        for node in document:
            _show(node, console)
    console.file.writelines(f"{line.rstrip()}\n" for line in shown.get().splitlines())


def _show(node: Node, console: Console) -> None:
    match node:
        case Heading():
            console.print()
            console.print(Line(node.text, style="bold"))
        case Text():
            console.print(Line(node.text, style=_STYLES[node.tone]))
        case Items():
            for text in node.texts:
                console.print(_beside("-", Line(text, style=_STYLES[node.tone])))
        case Code():
            lines = "\n".join(f"    {line}" for line in node.lines)
            console.print(Line(lines), soft_wrap=True)
        case Pairs():
            grid = Grid.grid(padding=(0, 1))
            grid.add_column(no_wrap=True, style="dim")
            grid.add_column(overflow="fold")
            for name, text in node.rows:
                grid.add_row(Line(name), Line(text))
            console.print(Padding(grid, (0, 0, 0, 1)))
        case Tiles():
            tiles = "; ".join(f"{value} {what}" for value, what in node.rows)
            console.print(Padding(Line(tiles), (0, 0, 0, 1)))
        case Findings():
            for one in node.found:
                said = [Line(one.sentence), *(Line(f"· {x}", style="dim") for x in one.evidence)]
                said += [Line(f"→ {one.fix}", style="cyan")] if one.fix else []
                said += [Line(one.docs, style="dim")] if one.docs else []
                label = Line(one.label, style=_STYLES[one.tone])
                console.print(_beside(label, Group(*said), width=_LABEL))
        case Table():
            console.print()
            console.print(_grid(node, console.width))


def _beside(label: Line | str, body: RenderableType, *, width: int = 1) -> RenderableType:
    grid = Grid.grid(padding=(0, 1))
    grid.add_column(width=width, justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(label, body)
    return Padding(grid, (0, 0, 0, 1))


def _grid(node: Table, width: int) -> Grid:
    rows = [
        [
            _short(cell) if c.of == "names" else cell
            for c, cell in zip(node.columns, row, strict=True)
        ]
        for row in node.rows
    ]
    shown, cut = _fitting(node, rows, width)
    caption = node.about(shown)
    if node.folded:
        caption += f"; {len(node.folded)} more {node.folded_name} are left out"
    grid = Grid(
        title=node.title, caption=caption, box=None, padding=(0, 1, 0, 0), header_style="bold",
        title_justify="left", caption_justify="left", title_style="bold",
    )  # fmt: skip
    for i in shown:
        column = node.columns[i]
        justify: JustifyMethod = "right" if column.of == "numbers" else "left"
        grid.add_column(_short(column.name), justify=justify, no_wrap=column.of != "words")
    styles = [_STYLES[tone] for tone in node.tones] or [""] * len(rows)
    for row, style in zip(rows, styles, strict=True):
        cells = [_cut(row[i], cut) if node.columns[i].of == "names" else row[i] for i in shown]
        # The first cell says what the row is of, which is never faint.
        grid.add_row(Line(cells[0]), *(Line(cell, style=style) for cell in cells[1:]))
    return grid


def _fitting(node: Table, rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], int]:
    """Return the columns for which there is room, and how long names may be.

    Names give way before columns do, and numbers are never cut.
    """
    shown = list(range(len(node.columns)))
    wide = [max([len(_short(c.name)), *(len(row[i]) for row in rows)]) + 1
            for i, c in enumerate(node.columns)]  # fmt: skip
    while True:
        names = [i for i in shown if node.columns[i].of != "numbers"]
        room = width - sum(wide[i] for i in shown if i not in names)
        longest = max((wide[i] for i in names), default=1) - 1
        others = sum(sorted(wide[i] for i in names)[:-1])
        left = room - others - 1
        droppable = [i for i in shown if node.columns[i].rank]
        if left >= min(longest, _LEAST_NAME) or not droppable:
            return shown, max(left, 1)
        shown.remove(max(droppable, key=lambda i: node.columns[i].rank))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"\N{HORIZONTAL ELLIPSIS}{text[len(text) - most + 1 :]}"


def _short(text: str) -> str:
    what, again, turn = text.partition(" #")
    return _SHORT.get(what, what) + again + turn
