"""A view put out: in the terminal, or as JSON for programs, and as a page.

nodes of a view --put_out--> terminal.py, html.py; what it was made of --json_text--> JSON
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text as Line

from .html import write_page
from .terminal import show
from .tree import Node


def json_text(content: object) -> str:
    """Return what programs read: one JSON object with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


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
        write_page(html, title, nodes)
        if as_json is None:
            console.print(Line(f"\nwith pictures: {html}"), soft_wrap=True)
