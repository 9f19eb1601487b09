"""The row of collectives that belong to no bucket, as it is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.analysis.run.test_others import collective, run_with

from .servers import one_page

pytestmark = pytest.mark.browser


def test_a_row_of_other_collectives(site: Path, browser: Any, tmp_path: Path) -> None:
    """Below the buckets, in the step that was sampled; a pointer over one has what it is."""
    run_with(tmp_path / "run", collective(1000, 9000), collective(15_000, 2000, name="barrier"))
    with one_page(site, browser, tmp_path, "run") as timeline:
        state = timeline.step(3)
        assert state["drawn"]["others"] == 4
        (box, _) = (one for one in state["others"] if one["rank"] == 0)
        bottom = state["lanes"]["top"] + state["lanes"]["laneHeight"]
        assert bottom - 2 * state["lanes"]["rowHeight"] < box["y"] < bottom
        frame = timeline.frame.locator("#lanes").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        timeline.page.mouse.move(frame["x"] + x, frame["y"] + y)
        timeline.frame.wait_for_function(
            "() => document.querySelector('#tooltip').textContent.includes('train.py:7')"
        )
        assert "all_reduce, step 3 of net, rank 0" in timeline.text("#tooltip")
        assert "other collectives" in timeline.text("#legend")
