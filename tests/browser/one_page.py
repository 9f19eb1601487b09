"""One TensorBoard and one page for all tests of a file, each of which leaves it as it found it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .page import Timeline
from .servers import tensorboard


@contextmanager
def one_page(site: Path, browser: Any, logs: Path, run: str) -> Iterator[Timeline]:
    """Serve the runs in ``logs`` and open one of them; at the end no script has failed."""
    with tensorboard(site, logs, logs.with_name(f"{logs.name}.log")) as address:
        context = browser.new_context(viewport={"width": 1300, "height": 800})
        page = Timeline(context.new_page(), address)
        page.choose(run)
        yield page
        assert page.page_errors == []
        context.close()
