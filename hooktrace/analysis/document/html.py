"""A document as one HTML file: nothing is loaded, nothing runs; all names are escaped.

What cannot be written is a ``UsageError``, before any work is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...records.errors import UsageError
from ...records.units import percent
from .tree import Node

_TEMPLATES = Path(__file__).with_name("templates")
STYLE = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
"""The style sheet, whose classes the pictures have."""


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


def write_page(path: Path, title: str, nodes: Iterable[Node]) -> None:
    """Write a document as one HTML file; raises ``UsageError`` where that cannot be."""
    with writing(path):
        path.write_text(page(title, nodes), encoding="utf-8")


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
