"""TensorBoard's own tabs, as it draws them: the table of HParams, the charts of Custom Scalars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ..exporters.processes import get, get_json, until
from .page import DEADLINE_MS
from .scalars import BUCKETS, HALF
from .servers import RANKS

pytestmark = pytest.mark.browser


def is_read(server: str) -> bool:
    """Whether TensorBoard has read both runs: a page that asks before that is not told later."""
    rows = {"allowedStatuses": ["STATUS_UNKNOWN", "STATUS_RUNNING"], "sliceSize": 100}
    found = get(f"{server}/data/plugin/hparams/session_groups?request={quote(json.dumps(rows))}")
    tag = quote(f"hooktrace.{HALF.model}.error/error_bucket{BUCKETS - 1}")
    points = get_json(f"{server}/data/plugin/scalars/scalars?run=half%2Frank0&tag={tag}")
    return "half/rank0" in found and "real/rank0" in found and len(points) == 2


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


def test_the_table_of_runs_has_a_row_each_with_hook_cap_and_ranks(tabs: Any) -> None:
    """The real run's and the made-up one's, in the columns of these names."""
    page = tabs("hparams")
    for row in ("half/rank0", "real/rank0"):
        page.wait_for_selector(f"vaadin-grid-cell-content >> text={row}")
    page.wait_for_selector("vaadin-grid-cell-content >> text=fp16_compress_hook")
    cells = [x.strip() for x in page.locator("vaadin-grid-cell-content").all_inner_texts()]
    names = ["bucket_cap_mb", "hook", "hook_options", "ranks"]
    assert cells[2:6] == names
    rows = {cells[i]: cells[i + 2 : i + 6] for i, x in enumerate(cells) if x.endswith("/rank0")}
    assert rows == {
        "half/rank0": ["8", "fp16_compress_hook", "", "2.0000"],
        "real/rank0": ["2", "allreduce_hook", "", f"{RANKS}.0000"],
    }


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
