"""64 ranks in the tab, one of them late: heat map, lanes, strip of the whole run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from .page import Timeline
from .runs import LATE_OF_MANY as LATE

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def _many(timeline: Timeline) -> None:
    timeline.choose("many")


def choose(timeline: Timeline, selector: str, value: str) -> dict[str, Any]:
    timeline.frame.select_option(selector, value)
    return timeline.settle()


def filter_by(timeline: Timeline, text: str) -> dict[str, Any]:
    timeline.frame.fill("#filter", text)
    return timeline.settle()


def corner(timeline: Timeline, selector: str = "#lanes") -> tuple[float, float]:
    box = timeline.frame.locator(selector).bounding_box()
    return box["x"], box["y"]


def heat_at(timeline: Timeline, rank: int, step: int) -> tuple[float, float]:
    locate = "([rank, step]) => window.hooktraceTimeline.locateHeat(rank, step)"
    at = timeline.frame.evaluate(locate, [rank, step])
    return at["x"], at["y"]


def heat_color(timeline: Timeline, rank: int, step: int) -> str:
    return timeline.pixels(*heat_at(timeline, rank, step), canvas="heat-map")[0]


def test_the_heat_map_shows_the_late_rank_and_leads_to_it(timeline: Timeline) -> None:
    """Its cells are the hottest, the pointer is told what a cell is, and a click shows the step."""
    timeline.press("h")
    state = choose(timeline, "#heat-value", "delay")
    assert (state["heat"]["isShown"], len(state["heat"]["rows"])) == (True, 64)
    lightness = [
        sum(int(heat_color(timeline, rank, 5)[i : i + 2], 16) for i in (1, 3, 5))
        for rank in range(64)
    ]
    assert np.argmin(lightness) == LATE
    assert sorted(lightness)[1] > lightness[LATE] + 200
    (x, y), at = corner(timeline, "#heat-map"), heat_at(timeline, LATE, 5)
    timeline.page.mouse.move(x + at[0], y + at[1])
    timeline.frame.wait_for_selector("#tooltip b")
    assert re.search(r"rank 37, step 5: after the first rank 1[12]", timeline.text("#tooltip"))
    assert "heat=delay" in timeline.page.url
    timeline.page.mouse.down()
    timeline.page.mouse.up()
    timeline.wait("s.mode === 'free' && !s.heat.isShown")
    shown = timeline.settle()
    assert LATE in shown["lanes"]["visible"]
    assert timeline.frame.input_value("#step") == "5"
    timeline.press("0")
    assert choose(timeline, "#sort", "rank")["mode"] == "fit"


def test_order_filter_and_groups(timeline: Timeline) -> None:
    """The late rank comes first with its host; a filter names ranks and hosts; a host folds."""
    hosts = [f"host-{i}" for i in range(8)]
    lanes = timeline.settle()["lanes"]
    assert [i for i in lanes["items"] if isinstance(i, str)] == hosts
    assert lanes["isStrip"]
    assert choose(timeline, "#sort", "lateness")["lanes"]["items"][:3] == ["host-4", LATE, 32]
    items = filter_by(timeline, "0-2, 12, host-4")["lanes"]["items"]
    assert items == ["host-4", LATE, 32, 33, 34, 35, 36, 38, 39, "host-0", 0, 1, 2, "host-1", 12]
    timeline.frame.uncheck("#hosts")
    assert timeline.settle()["lanes"]["items"][:2] == [LATE, 0]
    timeline.frame.check("#hosts")
    timeline.settle()
    x, y = corner(timeline)
    top = timeline.settle()["lanes"]["top"]
    timeline.page.mouse.click(x + 20, y + top + 8)
    state = timeline.wait("s.lanes.items.length === 7")
    assert state["lanes"]["items"][:2] == ["host-4", "host-0"]
    timeline.page.mouse.click(x + 20, y + top + 8)
    timeline.wait("s.lanes.items.length === 15")
    filter_by(timeline, "")
    choose(timeline, "#sort", "rank")


def test_who_is_late_stays_in_sight(timeline: Timeline) -> None:
    """Named at the edge that is nearer while its lane is not in the window; a click goes there."""
    state = timeline.settle()
    (edge,) = state["lateOutOfSight"]
    assert edge["rank"] == LATE
    assert LATE not in state["lanes"]["visible"]
    x, y = corner(timeline)
    timeline.page.mouse.click(x + edge["x"] + 9, y + edge["y"] + 5)
    state = timeline.wait(f"s.lanes.visible.includes({LATE})")
    assert state["lateOutOfSight"] == []
    timeline.frame.focus("#scrollbar")
    timeline.press("Home")


def test_the_scrollbar_goes_through_all_ranks(timeline: Timeline) -> None:
    """By pages and by keys, and it tells where it is."""
    frame, mouse = timeline.frame, timeline.page.mouse
    track = frame.locator("#scrollbar").bounding_box()
    most = float(frame.get_attribute("#scrollbar", "aria-valuemax"))
    assert timeline.settle()["scroll"] == 0
    mouse.click(track["x"] + track["width"] / 2, track["y"] + track["height"] - 3)
    assert timeline.settle()["scroll"] == pytest.approx(min(most, 0.9 * track["height"]), abs=5)
    assert timeline.press("End")["lanes"]["visible"][-1] == 63
    assert float(frame.get_attribute("#scrollbar", "aria-valuenow")) == pytest.approx(most, abs=1)
    assert timeline.press("PageUp")["scroll"] < most
    assert timeline.press("Home")["lanes"]["visible"][1] == 0
