"""Comm Timeline's address in Chromium: what it keeps, and that whoever opens it sees the same."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .page import Timeline

pytestmark = pytest.mark.browser

KEPT = ("run", "model", "mode", "scroll")


def opened(page: Any, server: str, state: str = "") -> Timeline:
    """Open the tab anew, at a state of the address."""
    page.goto("about:blank")
    return Timeline(page, server, state=state)


def kept(timeline: Timeline) -> dict[str, Any]:
    """Return what a reload must not change."""
    state = timeline.settle()
    assert not timeline.page_errors
    pinned = state["pinned"] and {k: state["pinned"][k] for k in ("rank", "step", "bucket", "id")}
    times = {name: round(state[name]) for name in ("t0", "t1")}
    return {**{name: state[name] for name in KEPT}, **times, "pinned": pinned}


def test_a_reload_and_a_link_show_the_same(page: Any, server: str) -> None:
    """Run, zoom and pinned bucket; a change of the tab leads no entry into the history."""
    timeline = opened(page, server)
    timeline.choose("b")
    timeline.step(7)
    entries = page.evaluate("history.length")
    timeline.page.mouse.click(*timeline.place(1, 7, 3))
    timeline.page.mouse.move(5, 5)
    timeline.press("w")
    before = kept(timeline)
    assert before["pinned"] == {"rank": 1, "step": 7, "bucket": 3, "id": 6 * 8 + 3}
    assert "p.hooktrace.run=b&" in page.url
    assert page.evaluate("history.length") == entries
    again = Timeline(page, None)
    assert kept(again) == before
    assert "bucket 3, step 7, rank 1" in again.text("#pinned")
    link = page.url.partition("#hooktrace")[2]
    assert kept(opened(page, server, link)) == before


def test_an_address_that_names_what_is_not_there_says_so(page: Any, server: str) -> None:
    """And shows what is there: another run, the nearest step, all of a run."""
    for state, told, run in (
        ("run=gone", "There is no run “gone” under this logdir; “a/late” is shown.", "a/late"),
        ("run=b&p.hooktrace.step=99", "There is no step 99 in this run; step 30 is", "b"),
        ("run=b&p.hooktrace.model=x", "This run has no model “x”; “synthetic” is shown.", "b"),
        ("run=b&p.hooktrace.t0=9e15&p.hooktrace.t1=9.1e15", "is not in this run; all", "b"),
        ("run=b&p.hooktrace.pinned=1/7/33", "rank 1 has no bucket 33 in step 7", "b"),
        ("run=/elsewhere/b&p.hooktrace.id=x", "The link is of run x; under this name", "b"),
    ):
        timeline = opened(page, server, f"&p.hooktrace.{state}")
        assert timeline.wait("s.told && s.drawn.ranks")["run"] == run
        assert told in timeline.text("#told")


def test_back_leads_to_what_was_there(page: Any, server: str) -> None:
    """A link that is pasted while the tab is open is followed, and back undoes that."""
    timeline = opened(page, server, "&p.hooktrace.run=b&p.hooktrace.step=7")
    before = kept(timeline)
    page.evaluate("location.hash = '#hooktrace&p.hooktrace.run=a/late&p.hooktrace.step=50'")
    timeline.wait("s.run === 'a/late' && s.mode === 'free'")
    assert kept(timeline)["t0"] > before["t1"]
    page.go_back()
    timeline.wait("s.run === 'b' && s.mode === 'free'")
    assert kept(timeline) == before


def test_jumps_arrive_and_the_step_box_follows(page: Any, server: str) -> None:
    """At the step, with the lane in the window, and never far beyond the run's ends."""
    timeline = opened(page, server, "&p.hooktrace.run=a/late")
    whole = timeline.whole("a/late")
    assert page.url.endswith("&p.hooktrace.whole=1")
    assert Timeline(page, None).settle("a/late")["mode"] == "fit"
    timeline = Timeline(page, None)
    timeline.settle("a/late")
    timeline.frame.locator("#anomalies .row").first.click()
    timeline.wait("s.mode === 'free'")
    state = timeline.settle()
    span = state["t1"] - state["t0"]
    assert span < 0.05 * (whole["t1"] - whole["t0"])
    assert timeline.place(1, 3, 7)[0] > timeline.place(1, 3, 0)[0] > 132
    assert timeline.frame.input_value("#step") == "3"
    for step in (1, 60):
        state = timeline.step(step)
        assert state["t0"] >= -0.031 * span
        assert state["t1"] <= state["extent"] + 0.031 * span
        assert timeline.frame.input_value("#step") == str(step)
    timeline.frame.locator("#late .row").first.click()
    timeline.settle()
    assert timeline.place(2, int(timeline.frame.input_value("#step")), 0)


TOLD = "(text) => document.querySelector('#tooltip').textContent.includes(text)"


def test_everything_is_in_a_small_window(page: Any, server: str) -> None:
    """The lists are below the plot, and a tooltip is inside in the corners."""
    page.set_viewport_size({"width": 800, "height": 600})
    timeline = opened(page, server, "&p.hooktrace.run=a/late&p.hooktrace.step=10")
    timeline.settle("a/late")
    plot, side = (timeline.frame.locator(name).bounding_box() for name in ("#main", "#side"))
    assert plot["y"] + plot["height"] <= side["y"] + 1
    assert side["height"] > 100
    assert side["y"] + side["height"] < 600
    assert timeline.frame.locator("#late .row").is_visible()
    for rank, bucket in ((0, 0), (3, 7)):
        page.mouse.move(*timeline.place(rank, 10, bucket))
        timeline.frame.wait_for_function(TOLD, arg=f"bucket {bucket}, step 10, rank {rank}")
        tip = timeline.frame.locator("#tooltip")
        at = tip.bounding_box()
        assert 0 <= at["x"] <= 800 - at["width"]
        assert 64 <= at["y"] <= 600 - at["height"]
        assert tip.evaluate("(e) => e.scrollHeight <= e.clientHeight + 1"), "it is cut off"
    page.set_viewport_size({"width": 1300, "height": 800})


def test_search_lights_a_bucket_on_all_ranks(page: Any, server: str) -> None:
    """By its parameter: in a step, the others dimmed; a link has it, Escape puts it out."""
    timeline = opened(page, server, "&p.hooktrace.run=a/late")
    timeline.settle("a/late")
    timeline.page.keyboard.press("/")
    timeline.page.keyboard.type("layers.5")
    timeline.frame.wait_for_selector("#found .row")
    assert "layers.5.weight" in timeline.text("#found .row")
    timeline.page.keyboard.press("Enter")
    timeline.wait("s.drawn.lit > 0")
    drawn = timeline.settle()["drawn"]
    assert drawn["lit"] == drawn["ranks"] == 4
    assert drawn["dimmed"] == drawn["bars"] - 4
    link = page.url.partition("#hooktrace")[2]
    timeline.press("Escape")
    assert timeline.state()["drawn"]["dimmed"] == 0
    again = opened(page, server, link)
    assert again.settle("a/late")["drawn"]["lit"] == 4
    assert again.frame.input_value("#search") == "layers.5"
    again.page.keyboard.press("/")
    again.page.keyboard.type("nonfinite")
    again.frame.wait_for_selector("#found .row:has-text('nonfinite gradient, step 3, rank 1')")
    again.page.keyboard.press("Enter")
    again.settle()
    assert again.frame.input_value("#step") == "3"


def test_bars_are_reached_by_keyboard_and_spoken(page: Any, server: str) -> None:
    """Alt and the arrows go from bucket to bucket and from rank to rank; ? lists the keys."""
    timeline = opened(page, server, "&p.hooktrace.run=a/late&p.hooktrace.step=10")
    timeline.settle("a/late")
    said = "(text) => document.getElementById('spoken').textContent.startsWith(text)"
    for key, who in (
        ("Alt+ArrowRight", "rank 0, step 10, bucket 0: "),
        ("Alt+ArrowRight", "rank 0, step 10, bucket 1: "),
        ("Alt+ArrowDown", "rank 1, step 10, bucket 1: "),
        ("Alt+ArrowLeft", "rank 1, step 10, bucket 0: "),
    ):
        timeline.page.keyboard.press(key)
        timeline.frame.wait_for_function(said, arg=who)
    spoken = timeline.frame.locator("#spoken").text_content()
    assert "ms, wire " in spoken
    assert re.search(r"; waits [\d.]+ ms for rank 2$", spoken)
    assert timeline.settle()["pinned"]["rank"] == 1
    timeline.page.keyboard.press("?")
    assert "Alt" in timeline.text("#keys-dialog[open]")
    timeline.page.keyboard.press("Escape")
    assert timeline.state()["pinned"] is not None
    timeline.press("Escape")
    assert timeline.state()["pinned"] is None


def test_legend_entries_filter(page: Any, server: str) -> None:
    """A click hides a stage, a click with Alt shows nothing else, a reload has it as it was."""
    wire = "#0072b2"
    timeline = opened(page, server, "&p.hooktrace.run=a/late&p.hooktrace.step=10")
    all_of = timeline.settle("a/late")["drawn"]
    assert wire in timeline.colors(2, 10, 1)
    entry = timeline.frame.locator("#legend button", has_text="wire")
    entry.click()
    assert timeline.settle()["drawn"]["stages"] == all_of["stages"] - all_of["bars"]
    assert wire not in timeline.colors(2, 10, 1)
    assert entry.get_attribute("aria-pressed") == "false"
    assert "p.hooktrace.hidden=wire" in page.url
    entry.click(modifiers=["Alt"])
    timeline.settle()
    only = Timeline(page, None).settle("a/late")["drawn"]
    assert (only["stages"], only["waits"], only["bars"]) == (all_of["bars"], 0, all_of["bars"])
