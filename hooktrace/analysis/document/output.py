"""A view put out: in the terminal, or as JSON for programs, and as one HTML file.

nodes of a view --put_out--> terminal.py, page; what it was made of --json_text--> JSON

Of a page nothing is loaded, nothing runs, and all names are escaped.  What cannot be written is a
``UsageError``, before any work is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text as Line

from ...records.errors import UsageError
from ...records.units import percent
from .terminal import show
from .tree import Node

_TEMPLATES = Path(__file__).with_name("templates")


def put_out(title: str, document: Iterable[Node], as_json: str | None, html: Path | None) -> None:
    """Print a document, or the text for programs alone; and write the page that was asked for.

    Raises ``UsageError`` where the page cannot be written.
    """
    nodes = [*document]
    console = Console(highlight=False, markup=False)
    if as_json is not None:
        console.file.write(as_json)
    else:
        show(console, nodes)
    if html is not None:
        with writing(html):
            html.write_text(page(title, nodes), encoding="utf-8")
        if as_json is None:
            console.print(Line(f"\nwith pictures: {html}"), soft_wrap=True)


def json_text(content: object) -> str:
    """Return what programs read: one JSON object with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def page(title: str, document: Iterable[Node]) -> str:
    """Return the whole page."""
    # Imported here: a terminal does without Jinja2.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    pages.filters["percent"] = percent
    nodes = [(type(node).__name__, node) for node in document]
    return pages.get_template("page.html.j2").render(title=title, nodes=nodes)


def check_writable(path: Path) -> None:
    """Raise ``UsageError`` where a file cannot be made at ``path``, before any work is done."""
    existed = path.exists()
    with writing(path), path.open("ab"):
        pass
    if not existed:
        path.unlink()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise ``UsageError`` for what goes wrong while ``path`` is written."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; pass a file in another directory, one that "
            "you may write"
        ) from error
