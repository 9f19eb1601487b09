"""What all browser tests share: a logdir of all runs and its server; a browser and page a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..once import made_once
from .page import Timeline
from .runs import write_runs
from .servers import tensorboard

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="session")
def api() -> Any:
    """What opens a browser; without it or a browser the tests are skipped."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; apt-get install chromium")
    return pytest.importorskip("playwright.sync_api", reason="pip install playwright")


@pytest.fixture(scope="module")
def browser(api: Any) -> Iterator[Any]:
    """A browser; not for longer than a file's tests, as its event loop is in other tests' way."""
    with api.sync_playwright() as playwright:
        # Chromium refuses its sandbox to root, as which containers run.
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="session")
def logdir(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "logs", write_runs)


@pytest.fixture(scope="session")
def server(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a TensorBoard with all runs."""
    with tensorboard(logdir, tmp_path_factory.mktemp("tensorboard") / "log") as address:
        yield address


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1300, "height": 800})
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def timeline(page: Any, server: str) -> Iterator[Timeline]:
    """The tab, for all tests of a file: each chooses its run, and leaves nothing pinned."""
    shown = Timeline(page, server)
    yield shown
    assert shown.page_errors == []
