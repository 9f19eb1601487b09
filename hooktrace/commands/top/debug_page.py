"""The picture of the whole job as a page of torch's debug server (torch >= 2.14).

start_debug_server(handlers=[...]) --process of rank 0--> DebugPage --the hub--> picture, as text

torch's own base class is in a private module, so the page only has the methods of one.
"""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from ...records.errors import UsageError
from ..ctl import address_of
from .live import snapshot_of
from .picture import Picture

_PAGE = """{% extends "base.html" %}
{% block header %}<h1>{% block title %}hooktrace{% endblock %}</h1>{% endblock %}
{% block content %}<pre>{{ text | e }}</pre>{% endblock %}
"""
_WIDTH = 130
"""Columns: as wide as torch's pages are."""


class DebugPage:
    """A page of ``torch.distributed.debug``, ``/hooktrace``: late ranks, last steps and hangs.

    ``run``: the directory of the job's records, where rank 0 can read it.  The page shows what
    ``hooktrace top`` does; where the job does not answer, it says so.

    Example::

        from torch.distributed.debug._debug_handlers import default_handlers

        pages = [*default_handlers(), hooktrace.DebugPage("runs/a")]
        torch.distributed.debug.start_debug_server(handlers=pages)
    """

    def __init__(self, run: str | os.PathLike[str]) -> None:
        self._run = Path(run).resolve()  # the server's process may be anywhere

    def routes(self) -> list[Any]:
        """Return where the page is."""
        return [SimpleNamespace(path="/hooktrace", handler=self._answer)]

    def nav_links(self) -> list[Any]:
        """Return the entry of the server's menu."""
        return [SimpleNamespace(path="/hooktrace", label="hooktrace")]

    def templates(self) -> dict[str, str]:
        """Return the page's frame, a Jinja template inside of the server's own."""
        return {"hooktrace.html": _PAGE}

    def dump(self) -> str:
        """Return the picture as text, for the server's periodic dumps."""
        try:
            shown = snapshot_of(address_of(self._run, None), "")
        except UsageError as error:
            return str(error)
        console = Console(file=StringIO(), width=_WIDTH, highlight=False, markup=False)
        with console.capture() as drawn:
            console.print(Picture(str(self._run), shown), crop=False)
        return drawn.get()

    def dump_filename(self) -> str:
        """Return how dumps of it are called, in ``enabled_dumps`` too."""
        return "hooktrace"

    def _answer(self, request: Any) -> bytes:
        page: bytes = request.frontend.render_template("hooktrace.html", text=self.dump())
        return page
