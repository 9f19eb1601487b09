"""What all browser tests share: one wheel and one real run of all processes, a browser a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..analysis.run.files import run_of, steps_of, text_of, write_ranks
from ..once import made_once
from .page import Timeline
from .servers import build_site, real_run, tensorboard

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
def site(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "wheel", build_site) / "site"


@pytest.fixture(scope="session")
def logdir(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many runs; ``real`` is the real one."""

    def write(folder: Path) -> None:
        real_run(folder / "real")
        for i in range(40):
            write_ranks(folder / f"sweep/lr{i:02d}", {0: text_of(run_of(0), steps_of(2))})

    return made_once(tmp_path_factory, "logs", write)


@pytest.fixture(scope="session")
def server(site: Path, logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("tensorboard") / "log"
    with tensorboard(site, logdir, log) as address:
        yield address


@pytest.fixture
def open_timeline(browser: Any) -> Iterator[Any]:
    """Return a function that opens the tab of a server's address and gives a ``Timeline``."""
    contexts = []
    opened = []

    def open_(address: str, *, run: str | None = None, **options: Any) -> Timeline:
        context = browser.new_context(viewport={"width": 1300, "height": 800}, **options)
        contexts.append(context)
        timeline = Timeline(context.new_page(), address)
        opened.append(timeline)
        if run is not None:
            timeline.choose(run)
        return timeline

    yield open_
    for timeline in opened:
        assert timeline.page_errors == []
    for context in contexts:
        context.close()
