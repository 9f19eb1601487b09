"""Reports and comparisons as a page, and as a terminal shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from io import StringIO

from rich.console import Console

from hooktrace.analysis.compare import Comparison
from hooktrace.analysis.compare import view as compare_view
from hooktrace.analysis.document.output import page
from hooktrace.analysis.document.terminal import show
from hooktrace.analysis.document.tree import Node
from hooktrace.analysis.report import RunReport
from hooktrace.analysis.report import view as report_view

Shown = RunReport | Sequence[Comparison]


def document_of(what: Shown) -> Iterable[Node]:
    if isinstance(what, RunReport):
        return report_view.document(what)
    return compare_view.document(what)


def page_of(what: Shown) -> str:
    """Return the page of a report, or of comparisons."""
    return page("hooktrace report", document_of(what))


def printed(what: Shown, width: int = 200) -> str:
    """Return what a terminal so wide shows."""
    return lines_of(document_of(what), width)


def lines_of(nodes: Iterable[Node], width: int) -> str:
    """Return a document as a terminal so wide shows it."""
    console = Console(file=StringIO(), width=width, highlight=False, markup=False)
    show(console, nodes)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


class Page(HTMLParser):
    """Checks that elements are closed in order; collects tags, attributes and text."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.classes: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.lines: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.classes.append(str(dict(attrs).get("class") or ""))
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.lines.append(data)
