"""Comm Timeline in Chromium, from a stock TensorBoard: what is drawn, told and done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts

from ..analysis.run.files import run_of, steps_of, text_of, write_ranks
from .page import Timeline
from .runs import HARM, HARMFUL, JOBS, SWEEP
from .servers import tensorboard

pytestmark = pytest.mark.browser

WIRE = "#0072b2"
BACKGROUND = "#ffffff"
RANKS, STEPS, BUCKETS = 4, 12, 8
"""Of the run with a late rank."""


@pytest.fixture
def another_page(browser: Any) -> Iterator[Any]:
    """One that is not the ``timeline``'s."""
    made = browser.new_page(viewport={"width": 1300, "height": 800})
    yield made
    made.close()


def test_it_opens_on_a_typical_step(another_page: Any, server: str) -> None:
    """Each bucket in a bar with its stages, its number in the box; one key away the whole run."""
    timeline = Timeline(another_page, server, state="&p.hooktrace.run=late")
    state = timeline.settle("late")
    drawn, number = state["drawn"], int(timeline.frame.input_value("#step"))
    assert state["mode"] == "free"
    assert state["t1"] - state["t0"] < 0.5 * state["extent"]
    assert (drawn["bars"], drawn["bins"], drawn["lastMarks"]) == (RANKS * BUCKETS, 0, RANKS)
    assert (drawn["stages"], drawn["waits"]) == (3 * RANKS * BUCKETS, (RANKS - 1) * BUCKETS)
    assert drawn["exposed"] >= RANKS
    assert len({timeline.place(rank, number, 0)[1] for rank in range(RANKS)}) == RANKS
    assert all(WIRE in timeline.colors(rank, number, 0) for rank in range(RANKS))
    whole = timeline.press("0")
    drawn = whole["drawn"]
    assert (whole["mode"], drawn["ranks"], drawn["steps"]) == ("fit", RANKS, RANKS * STEPS)
    assert drawn["marks"] == 0
    assert 0 < drawn["bars"] + drawn["bins"] <= RANKS * STEPS * BUCKETS
    assert drawn["rulerSteps"] > 3
    assert timeline.frame.input_value("#step") == ""


def test_tooltip_has_the_numbers_and_names_and_a_click_pins_them(timeline: Timeline) -> None:
    """As the file has them; pinned stays when the pointer goes, Escape unpins."""
    timeline.choose("late")
    timeline.step(5)
    timeline.page.mouse.move(*timeline.place(1, 5, 3))
    timeline.frame.wait_for_selector("#tooltip .names")
    text = timeline.text("#tooltip")
    assert "bucket 3, step 5, rank 1" in text
    for told in ("16.212 ms", "1,000,000 float32", "layers.3.weight", "wire"):
        assert told in text
    assert timeline.state()["pinned"] is None
    timeline.page.mouse.down()
    timeline.page.mouse.up()
    timeline.page.mouse.move(5, 5)
    timeline.wait("s.pinned && !s.hovered")
    assert "bucket 3, step 5, rank 1" in timeline.text("#pinned")
    assert timeline.frame.locator("#tooltip").is_hidden()
    timeline.press("Escape")
    assert timeline.state()["pinned"] is None


def test_keys_zoom_pan_and_step(timeline: Timeline) -> None:
    """W and s are inverse, a and d and the arrows too; [ and ] go by steps, 0 shows all."""
    whole = timeline.choose("late")
    near = timeline.press("w")
    assert near["t1"] - near["t0"] == pytest.approx(0.7 * (whole["t1"] - whole["t0"]))
    right = timeline.press("d")
    assert right["t0"] - near["t0"] == pytest.approx(0.2 * (near["t1"] - near["t0"]))
    assert timeline.press("a")["t0"] == pytest.approx(near["t0"])
    assert timeline.press("ArrowRight")["t0"] == pytest.approx(right["t0"])
    assert timeline.press("ArrowLeft")["t0"] == pytest.approx(near["t0"])
    far = timeline.press("s")
    assert far["t1"] - far["t0"] == pytest.approx(whole["t1"] - whole["t0"])
    at_5 = timeline.step(5)
    after = timeline.press("]")
    assert after["t0"] > at_5["t0"]
    assert timeline.frame.input_value("#step") == "6"
    assert timeline.press("[")["t0"] == pytest.approx(at_5["t0"])
    assert timeline.press("0")["t1"] == pytest.approx(whole["t1"])


def test_drag_pans_and_the_wheel_zooms_at_the_pointer(timeline: Timeline) -> None:
    """What is under the pointer stays under it."""
    timeline.choose("late")
    before = timeline.step(5)
    x, y = timeline.place(1, 5, 1)
    mouse = timeline.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move(x - 100, y, steps=4)
    mouse.up()
    dragged = timeline.settle()
    assert dragged["t0"] > before["t0"]
    assert dragged["pinned"] is None
    assert timeline.place(1, 5, 1)[0] == pytest.approx(x - 100, abs=1)
    mouse.wheel(0, -200)
    zoomed = timeline.settle()
    assert zoomed["t1"] - zoomed["t0"] < 0.6 * (dragged["t1"] - dragged["t0"])


def test_the_fast_loader_has_all_runs_too(another_page: Any, logdir: Path, tmp_path: Path) -> None:
    """TensorBoard's; other tests are without."""
    with tensorboard(logdir, tmp_path / "log", load_fast=True) as address:
        timeline = Timeline(another_page, address)
        timeline.settle()
        names = timeline.frame.locator("#run option").all_inner_texts()
        assert set(names) >= {*JOBS, *SWEEP, HARMFUL}
        state = timeline.choose(SWEEP[7])
        assert (state["drawn"]["ranks"], state["model"]) == (1, "net")
        assert timeline.page.locator("text=Comm Timeline").first.is_visible()


def test_a_running_job_is_followed(another_page: Any, tmp_path: Path) -> None:
    """A logdir that was empty gets a run, and the run grows: both appear by themselves."""
    logs = tmp_path / "logs"
    logs.mkdir()
    text = text_of(run_of(0), steps_of(40), ended=False)
    lines = text.splitlines(keepends=True)
    tenth = next(line for line in lines if '"kind":"step"' in line and '"step":9,' in line)
    cut = text.index(tenth) + 20  # in the middle of a line
    with tensorboard(logs, tmp_path / "log") as address:
        timeline = Timeline(another_page, address)
        timeline.wait("s.notice.includes('no record file')")
        write_ranks(logs / "job", {0: text[:cut]})
        state = timeline.whole("job")
        assert state["drawn"]["steps"] == 9
        timeline.press("l")
        write_ranks(logs / "job", {0: text})
        timeline.wait(f"s.extent >= {39 * 10_000_000} && !s.isBusy && s.mode === 'follow'")
        state = timeline.settle()
        assert state["t1"] > state["extent"] > state["t0"]
        assert timeline.frame.is_checked("#follow")
        assert timeline.press("0")["drawn"]["steps"] == 40


def test_names_do_no_harm_and_broken_files_are_named(timeline: Timeline) -> None:
    """Markup in names is text; what cannot be read is told beside what can."""
    state = timeline.choose(HARMFUL)
    assert state["model"] == HARM
    assert state["drawn"]["bars"] == 8
    timeline.page.mouse.move(*timeline.place(0, 2, 0))
    timeline.frame.wait_for_selector("#tooltip .names")
    assert HARM in timeline.text("#tooltip .names")
    assert HARM in timeline.text("#tooltip .bad")
    assert HARM in timeline.text("#anomalies")
    notes = timeline.text("#notes")
    assert re.search(r"rank 0: line \d+ could not be read", notes)
    assert "rank00002.jsonl cannot be read: not a regular file" in notes
    # TensorBoard's policy would stop the script of markup, but there must be no markup at all.
    assert timeline.frame.locator("img").count() == 0
    assert timeline.page.evaluate("window.harm") is None


def colors_of(timeline: Timeline, box: dict[str, Any], *, inset: float = 3.0) -> set[str]:
    width, height = box["width"] - 2 * inset, box["height"] - 2
    return set(timeline.pixels(box["x"] + inset, box["y"] + 1, width, height))


def test_a_hang_that_lasts_is_drawn_open(timeline: Timeline, logdir: Path) -> None:
    """Hatched on the ranks that wait, torn off at the edge; the missing rank's lane is marked."""
    state, record = timeline.choose("lasts"), read_parts(find_records(logdir / "lasts")[0]).hangs[0]
    assert {k: state["drawn"][k] for k in ("hangs", "missing", "open")} == {
        "hangs": 3, "missing": 1, "open": 4
    }  # fmt: skip
    width = timeline.frame.evaluate("() => document.getElementById('lanes').clientWidth")
    boxes = {box["rank"]: box for box in state["hangs"]}
    assert all(box["x"] + box["width"] == pytest.approx(width) for box in boxes.values())
    assert len({box["height"] for box in boxes.values()}) == 1  # of a lane
    for box in boxes.values():
        plain = {**box, "x": box["x"] + 0.6 * box["width"], "width": 0.3 * box["width"]}
        assert len(colors_of(timeline, plain)) > 3  # hatched, right of the label
    torn = {"x": width - 3, "y": boxes[2]["y"], "width": 3, "height": boxes[2]["height"]}
    assert BACKGROUND in colors_of(timeline, torn, inset=0)
    frame = timeline.frame.locator("#lanes").bounding_box()
    for rank, part in ((0, "waits"), (2, "is waited for")):
        box = boxes[rank]
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        timeline.page.mouse.move(frame["x"] + x, frame["y"] + y)
        timeline.frame.wait_for_selector("#tooltip .bad")
        text = timeline.text("#tooltip")
        assert f"hang, step 12: rank {rank} {part}" in text
        assert f"{record.message}; no end of it is recorded" in text
    row = timeline.frame.locator("#anomalies .row").first
    assert "hang, step 12, for rank 2" in row.inner_text()
    timeline.press("w")
    row.click()
    timeline.wait("s.mode === 'free'")
    shown = timeline.settle()
    start = min(box["start"] for box in shown["hangs"])
    assert (shown["t0"] + shown["t1"]) / 2 == pytest.approx(start, rel=0.01)
