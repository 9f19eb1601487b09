"""A document as one HTML file: nothing is loaded, nothing runs; all names are escaped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ...records.units import percent
from .tree import Node

_TEMPLATES = Path(__file__).with_name("templates")
STYLE = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
"""The style sheet, whose classes the pictures have."""

_pages = Environment(
    loader=FileSystemLoader(_TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    keep_trailing_newline=True,
)
_pages.filters["percent"] = percent


def page(title: str, document: Iterable[Node]) -> str:
    """Return the whole page."""
    nodes = [(type(node).__name__, node) for node in document]
    return _pages.get_template("page.html.j2").render(title=title, nodes=nodes)
