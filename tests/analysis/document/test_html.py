"""The page: its template is installed with the package, and what is in it is escaped."""

from __future__ import annotations

import tomllib
from pathlib import Path

import hooktrace
from hooktrace.analysis.document import html
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

FOLDER = Path(html.__file__).with_name("templates")
PYPROJECT = Path(hooktrace.__file__).parents[1] / "pyproject.toml"


def test_templates_are_installed_with_the_package() -> None:
    """A wheel has what pyproject says, and no template more would be missed before."""
    data = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]["package-data"]
    packed = {
        p for pattern in data["hooktrace.analysis.document"] for p in FOLDER.parent.glob(pattern)
    }
    assert packed == set(FOLDER.iterdir())


def test_each_kind_of_node_is_shown_and_names_are_escaped() -> None:
    """Whatever a file says, none of it becomes markup."""
    odd = "<i x>&"
    table = Table(odd, [Column(odd, odd)], [[odd]], odd, [[odd]], odd, ["strong"])
    nodes = [
        Heading(odd), Text(odd), Items([odd], "warn"), Code([odd]), Pairs([(odd, odd)]),
        Tiles([(odd, odd)]), Findings([Found(odd, odd, [odd], odd, "good", 0.25)]), table,
        Picture(odd, None, otherwise=odd),
    ]  # fmt: skip
    made = html.page(odd, nodes)
    assert odd not in made
    # The title twice, and of a table the columns once more where rows are folded.
    assert made.count("&lt;i x&gt;&amp;") == 2 + 3 + 1 + 2 + 2 + 4 + 7 + 2
    assert "at most, 25 % of a step" in made
    assert '<tr class="strong">' in made
