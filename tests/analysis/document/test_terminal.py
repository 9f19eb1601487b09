"""Tables as wide as there is room: names give way first, then columns; numbers are whole."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from hooktrace.analysis.document.terminal import show
from hooktrace.analysis.document.tree import Column, Items, Picture, Table

TABLE = Table(
    "A table",
    [
        Column("unit", of="names"),
        Column("payload", "payload: what it is given"),
        Column("time", "time: of all of it", rank=2),
        Column("p95", rank=1),
    ],
    [["model.transformer.layers.11.mlp", "1,234,567", "28.12", "30.25"]],
    folded=[["another", "1", "1", "1"]] * 3,
    folded_name="units",
)


def lines(table: Table, width: int) -> list[str]:
    console = Console(file=StringIO(), width=width)
    show(console, [table])
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_all_is_shown_where_there_is_room() -> None:
    title, names, row, *caption = lines(TABLE, 80)
    assert (title, names.split()) == ("A table", ["unit", "payload", "time", "p95"])
    assert row.split() == ["model.transformer.layers.11.mlp", "1,234,567", "28.12", "30.25"]
    said = "payload: what it is given; time: of all of it; 3 more units are left out"
    assert " ".join(caption) == said


def test_names_give_way_and_then_columns() -> None:
    """The highest rank first; what is said of a column goes with it."""
    _, _, row, *_ = lines(TABLE, 48)
    assert row == "\N{HORIZONTAL ELLIPSIS}ransformer.layers.11.mlp 1,234,567 28.12 30.25"
    _, names, row, *caption = lines(TABLE, 34)
    assert names.split() == ["unit", "payload", "p95"]
    assert row.split()[1:] == ["1,234,567", "30.25"]
    assert "time:" not in " ".join(caption)
    _, names, row, *_ = lines(TABLE, 20)
    assert names.split() == ["unit", "payload"]
    assert row.split()[1] == "1,234,567"


def test_a_number_is_whole_on_the_narrowest_line() -> None:
    _, _, row, *_ = lines(TABLE, 15)
    assert row.split() == ["\N{HORIZONTAL ELLIPSIS}mlp", "1,234,567"]


def test_no_name_is_markup_and_pictures_are_left_to_pages() -> None:
    console = Console(file=StringIO(), width=40)
    show(console, [Items(["[bold]x[/bold]"], "warn"), Picture("a picture", None)])
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().strip() == "- [bold]x[/bold]"
