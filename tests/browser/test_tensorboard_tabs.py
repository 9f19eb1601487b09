"""TensorBoard's own tab Custom Scalars, as it draws it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ..exporters.processes import get_json, until
from .page import DEADLINE_MS
from .scalars import BUCKETS, HALF

pytestmark = pytest.mark.browser


def is_read(server: str) -> bool:
    """Whether TensorBoard has read the probed run: a page that asks before is not told later."""
    tag = quote(f"hooktrace.{HALF.model}.error/error_bucket{BUCKETS - 1}")
    points = get_json(f"{server}/data/plugin/scalars/scalars?run=half%2Frank0&tag={tag}")
    return len(points) == 2


@pytest.fixture(scope="module")
def tabs(browser: Any, server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function that opens a tab by its name."""
    log: Path = tmp_path_factory.mktemp("tabs") / "log"
    log.touch()
    until(lambda: is_read(server), bool, log)
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    page.set_default_timeout(DEADLINE_MS)

    def open_(name: str) -> Any:
        page.goto(f"{server}/#{name}")
        return page

    yield open_
    page.close()


def test_one_chart_has_the_errors_of_all_buckets(tabs: Any) -> None:
    """A line each, of the run that was probed."""
    page = tabs("custom_scalars")
    card = page.locator("tf-custom-scalar-multi-line-chart-card").first
    card.locator(f"text=Matches ({BUCKETS})").wait_for()
    card.get_by_text("relative error of all buckets").wait_for()
    lines = card.locator(".line-plot:not(.ghost) path.line")
    lines.nth(BUCKETS - 1).wait_for(state="attached")
    drawn = {line.get_attribute("d") for line in lines.all()}
    assert len(drawn) == BUCKETS
    assert all(path and "L" in path for path in drawn)
