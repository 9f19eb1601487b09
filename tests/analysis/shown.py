"""Reports and comparisons as a page, and as a terminal shows them."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console

from hooktrace.analysis.compare import Comparison
from hooktrace.analysis.compare import view as compare_view
from hooktrace.analysis.document.html import page
from hooktrace.analysis.document.terminal import show
from hooktrace.analysis.document.tree import Table
from hooktrace.analysis.report import RunReport
from hooktrace.analysis.report import view as report_view

Shown = RunReport | Sequence[Comparison]


def page_of(what: Shown) -> str:
    """Return the page of a report, or of comparisons."""
    if isinstance(what, RunReport):
        return page("hooktrace report", report_view.document(what, pictures=True))
    return page("hooktrace compare", compare_view.document(what, pictures=True))


def printed(what: Shown, width: int = 200) -> str:
    """Return what a terminal so wide shows."""
    console = Console(file=StringIO(), width=width, highlight=False, markup=False)
    view = report_view.document if isinstance(what, RunReport) else compare_view.document
    show(console, view(what, pictures=False))  # type: ignore[operator]
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def named(table: Table) -> list[dict[str, str]]:
    """Return the rows of a table, cells by the names of their columns."""
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in (*table.rows, *table.folded)]
