"""Documents: pages escape what a file says, tables fit the terminal, pictures are text."""

from __future__ import annotations

import tomllib
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import hooktrace
from hooktrace.analysis.document import output
from hooktrace.analysis.document.terminal import show
from hooktrace.analysis.document.tree import (
    Code,
    Column,
    Findings,
    Found,
    Heading,
    Items,
    Pairs,
    Picture,
    Table,
    Text,
    Tiles,
)
from hooktrace.analysis.report.pictures import Svg

FOLDER = Path(output.__file__).with_name("templates")
PYPROJECT = Path(hooktrace.__file__).parents[1] / "pyproject.toml"


def test_templates_are_installed_with_the_package() -> None:
    """A wheel has what pyproject says, and no template more would be missed before."""
    data = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]["package-data"]
    packed = {
        p for pattern in data["hooktrace.analysis.document"] for p in FOLDER.parent.glob(pattern)
    }
    assert packed == set(FOLDER.iterdir())


def test_each_kind_of_node_is_shown_and_names_are_escaped() -> None:
    odd = "<i x>&"
    table = Table(odd, [Column(odd, odd)], [[odd]], odd, [[odd]], odd, ["strong"])
    nodes = [
        Heading(odd), Text(odd), Items([odd], "warn"), Code([odd]), Pairs([(odd, odd)]),
        Tiles([(odd, odd)]), Findings([Found(odd, odd, [odd], odd, "good", 0.25)]), table,
        Picture(odd, lambda: Svg(1, odd), odd),
    ]  # fmt: skip
    made = output.page(odd, nodes)
    assert odd not in made
    # The title twice, and of a table the columns once more where rows are folded.
    assert made.count("&lt;i x&gt;&amp;") == 2 + 3 + 1 + 2 + 2 + 4 + 7 + 3
    assert "at most, 25 % of a step" in made
    assert '<tr class="strong">' in made


@pytest.mark.parametrize(
    ("docs", "shown"),
    [
        ("https://docs.example.com/hangs/#busy", '<a href="https://docs.example.com/hangs/#busy">'),
        ("docs/hangs.md#busy", "<small>docs/hangs.md#busy</small>"),
    ],
)
def test_a_finding_has_its_address(docs: str, shown: str) -> None:
    """A link if it leads somewhere from a page."""
    assert shown in output.page("t", [Findings([Found("-", "Sentence.", docs=docs)])])


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


@pytest.mark.parametrize(
    ("width", "unit", "numbers", "said"),
    [
        (80, "model.transformer.layers.11.mlp", "1,234,567 28.12 30.25", "time: of all of it; "),
        (48, "\N{HORIZONTAL ELLIPSIS}ransformer.layers.11.mlp", "1,234,567 28.12 30.25", "time:"),
        (34, "\N{HORIZONTAL ELLIPSIS}er.layers.11.mlp", "1,234,567 30.25", ""),
        (20, "\N{HORIZONTAL ELLIPSIS}s.11.mlp", "1,234,567", ""),
        (15, "\N{HORIZONTAL ELLIPSIS}mlp", "1,234,567", ""),
    ],
)
def test_names_give_way_and_then_columns(width: int, unit: str, numbers: str, said: str) -> None:
    """The highest rank first; what is said of a column goes with it, and no number is cut."""
    title, names, row, *caption = lines(TABLE, width)
    assert title == "A table"
    assert len(names.split()) == len(row.split())
    assert row.split() == [unit, *numbers.split()]
    assert ("time:" in " ".join(caption)) == bool(said)
    assert " ".join(caption).startswith(f"payload: what it is given; {said}".strip()[:15])


def test_no_name_is_markup_and_pictures_are_left_to_pages() -> None:
    console = Console(file=StringIO(), width=40)
    show(console, [Items(["[bold]x[/bold]"], "warn"), Picture("a picture", lambda: Svg(1, ""))])
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().strip() == "- [bold]x[/bold]"
