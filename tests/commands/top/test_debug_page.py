"""The page for torch's debug server; in a real one: distributed/test_whole_job.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from jinja2 import DictLoader, Environment

from hooktrace import DebugPage
from hooktrace.commands.top import debug_page

from .snapshots import job

BASE = "{% block header %}{% endblock %}{% block content %}{% endblock %}"


def shown(page: DebugPage) -> str:
    """Return what a server gives for the one entry of its menu."""
    ((link,), (route,)) = page.nav_links(), page.routes()
    assert link.path == route.path == "/hooktrace"
    frames = Environment(loader=DictLoader({"base.html": BASE, **page.templates()}))
    frontend: Any = SimpleNamespace(
        render_template=lambda name, **known: frames.get_template(name).render(known).encode()
    )
    return str(route.handler(SimpleNamespace(frontend=frontend)).decode())


def test_the_page_is_what_top_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the names of a model hold."""
    monkeypatch.chdir(tmp_path)
    page = DebugPage("runs/a")
    monkeypatch.chdir("/")  # the server is a process of its own
    answer = msgspec.structs.replace(job(), model="<net>")
    client: Any = SimpleNamespace(ask=lambda *_: msgspec.msgpack.encode(answer), close=int)
    monkeypatch.setattr(debug_page, "address_of", lambda run, _: run)
    monkeypatch.setattr(debug_page, "Client", lambda run: client)
    text = shown(page)
    assert f"hooktrace top  {tmp_path}/runs/a  model &lt;net&gt;" in text
    assert "ranks have told" in text


def test_a_job_that_is_not_there_is_said(tmp_path: Path) -> None:
    """And the page asks again when it is loaded again."""
    assert "channel.json is not there: the job has ended, or rank 0" in shown(DebugPage(tmp_path))
