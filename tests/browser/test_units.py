"""A sharded run in the tab: rows by kind, units by name, exposed time where it is, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_shards import ShardedJob, write_sharded_job

from .servers import tensorboard

pytestmark = pytest.mark.browser

JOB = ShardedJob(ranks=4, replicas=2, steps=6, late_ms={3: 4.0})
FORWARD, SCATTER = 1, 8
"""Buckets of JOB: blocks.0's all-gather in the forward pass, and its neighbour's reduce-scatter."""


@pytest.fixture(scope="module")
def served(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("sharded")
    write_sharded_job(JOB, folder / "sharded")
    write_job(SyntheticJob(ranks=2, steps=4), folder / "ddp")
    with tensorboard(site, folder, tmp_path_factory.mktemp("tensorboard") / "log") as address:
        yield address


def test_bars_say_their_unit_and_the_row_its_kind(served: str, open_timeline: Any) -> None:
    """On hover, pinned and aloud; exposed stretches are as many as collectives."""
    timeline = open_timeline(served)
    timeline.choose("sharded")
    state = timeline.step(3)
    assert state["drawn"]["lastMarks"] == 0
    assert state["drawn"]["exposed"] == state["drawn"]["bars"] > 0
    unit = str(JOB.slots()[FORWARD])
    timeline.page.mouse.move(*timeline.place(1, 3, FORWARD))
    timeline.frame.wait_for_selector("#tooltip .names")
    text = timeline.text("#tooltip")
    assert f"{unit}, step 3, rank 1" in text
    assert "exposed\t1.000 ms" in text
    assert "bucket" not in text
    timeline.page.mouse.down()
    timeline.page.mouse.up()
    timeline.wait("s.pinned")
    assert "Pinned collective" in timeline.text("#side")
    timeline.press("Alt+ArrowRight")
    timeline.frame.wait_for_function("() => document.getElementById('spoken').textContent")
    spoken = timeline.frame.locator("#spoken").text_content()
    assert spoken.startswith(
        f"rank 1, step 3, {JOB.slots()[FORWARD + 1]}: 1.00 ms, all of it exposed"
    )
    assert "bucket" not in timeline.frame.locator("#middle").inner_text()
    assert timeline.frame.get_by_text("last bucket ready").is_hidden()


def test_rows_by_kind_lie_below_each_other(served: str, open_timeline: Any) -> None:
    """A unit's gather is above its reduce-scatter; a run of buckets has its own gutter back."""
    timeline = open_timeline(served)
    timeline.choose("sharded")
    timeline.step(3)
    scatter = next(i for i, u in enumerate(JOB.slots()) if str(u).startswith("<root> reduce-s"))
    high, low = timeline.place(0, 3, FORWARD)[1], timeline.place(0, 3, scatter)[1]
    assert low - high == pytest.approx(2 * timeline.state()["lanes"]["rowHeight"])
    box = timeline.frame.locator("#lanes").bounding_box()
    wide = box["width"] - timeline.frame.evaluate("() => 132 + 88")
    assert timeline.state()["lanesWidth"] == pytest.approx(wide)
    timeline.choose("ddp")
    assert timeline.state()["lanesWidth"] == pytest.approx(box["width"] - 132)
    assert timeline.frame.get_by_text("last bucket ready").is_visible()


def test_a_unit_is_searched_and_lit_and_a_stretch_is_told_by_unit(
    served: str, open_timeline: Any
) -> None:
    """All collectives of the unit on all ranks."""
    timeline = open_timeline(served)
    timeline.choose("sharded")
    timeline.step(3)
    timeline.page.keyboard.press("/")
    timeline.page.keyboard.type("blocks.1")
    timeline.frame.wait_for_selector("#found-0")
    assert timeline.text("#found-0").startswith("blocks.1")
    timeline.page.keyboard.press("Enter")
    state = timeline.settle()
    own = [u for u in JOB.slots() if u.name == "blocks.1"]
    lit = state["drawn"]["lit"]
    assert lit >= len(own) * JOB.ranks
    assert lit < state["drawn"]["dimmed"]
