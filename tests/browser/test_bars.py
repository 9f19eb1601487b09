"""What bars of made-up jobs show: who waits for whom, sharded units, collectives of no bucket."""

from __future__ import annotations

import pytest

from .page import Timeline
from .runs import SHARDED

pytestmark = pytest.mark.browser

WIRE, WIRE_DARK = "#0072b2", "#2f8fd8"
FORWARD = 1
"""The bucket that is blocks.0's all-gather in the forward pass."""


def share_of_wire(timeline: Timeline, rank: int, bucket: int, part: tuple[float, float]) -> float:
    """Return the share of a part of a bar's lower half that has the wire's full colour."""
    at, (begin, end) = timeline.located(rank, 5, bucket), part
    x, width = at["x"] + (begin - 0.5) * at["width"], (end - begin) * at["width"]
    found = timeline.pixels(x, at["y"] + 1, width, 2)
    return found.count(WIRE) / len(found)


def test_the_part_that_waits_is_hatched_and_the_transfer_solid(timeline: Timeline) -> None:
    """12 of 16 ms on ranks 0, 1 and 3; nothing on the rank that they wait for.

    Arrows lead to all that waited, of one step; of the whole run there are none.
    """
    timeline.choose("late")
    drawn = timeline.step(5)["drawn"]
    assert (drawn["waits"], drawn["arrows"]) == (3 * 8, 3 * 8)
    for rank in (0, 3):
        assert 0.1 < share_of_wire(timeline, rank, 3, (0.3, 0.7)) < 0.7
        assert share_of_wire(timeline, rank, 3, (0.78, 0.98)) > 0.95
    assert share_of_wire(timeline, 2, 3, (0.7, 0.9)) > 0.95
    assert "wait" in timeline.text("#legend")
    assert timeline.press("0")["drawn"]["arrows"] == 0


def test_the_late_rank_is_told(timeline: Timeline) -> None:
    """In the lists, on its bars, in their tooltip; and in that of a bucket that waits for it."""
    timeline.choose("late")
    assert "rank 2: last in 100 % of the steps" in timeline.text("#late")
    assert "for rank 2" in timeline.text("#waiting")
    assert timeline.step(5)["drawn"]["late"] == 8
    timeline.page.mouse.move(*timeline.place(2, 5, 1))
    timeline.frame.wait_for_selector("#tooltip .names")
    assert "12.000 ms (±" in timeline.text("#tooltip")
    timeline.page.mouse.move(*timeline.place(1, 5, 3))
    timeline.frame.wait_for_selector("#tooltip .waiting")
    assert timeline.text("#tooltip .waiting") == "waits 12 ms for rank 2"
    assert "wire: transfer" in timeline.text("#tooltip")


SWATCHES = """() => Object.fromEntries([...document.querySelectorAll("#tooltip .stages th")]
    .map((th) => [th.textContent, getComputedStyle(th.firstChild).backgroundColor]))"""


def test_a_tooltips_stages_have_the_colours_of_the_bars(timeline: Timeline) -> None:
    """In light and in dark, which follows TensorBoard's switch, and not the system's setting."""
    timeline.choose("late")
    timeline.step(5)
    timeline.page.mouse.move(*timeline.place(0, 5, 1))
    timeline.frame.wait_for_selector("#tooltip .stages")
    assert timeline.frame.evaluate(SWATCHES) == {
        "compress": "rgb(230, 159, 0)", "wire: transfer": "rgb(0, 114, 178)",
        "wire: wait": "rgba(0, 0, 0, 0)",  # hatched by an image
        "decompress": "rgb(43, 143, 21)",
    }  # fmt: skip
    timeline.page.evaluate("document.body.classList.add('dark-mode')")
    timeline.wait("s.theme === 'dark'")
    timeline.settle()
    assert timeline.frame.evaluate(SWATCHES)["wire: transfer"] == "rgb(47, 143, 216)"
    assert WIRE_DARK in timeline.colors(2, 5, 1)
    timeline.page.evaluate("document.body.classList.remove('dark-mode')")
    assert timeline.wait("s.theme === 'light'")


def test_bars_say_their_unit_and_the_row_its_kind(timeline: Timeline) -> None:
    """On hover, pinned and aloud; exposed stretches are as many as collectives."""
    timeline.choose("sharded")
    state = timeline.step(3)
    assert state["drawn"]["lastMarks"] == 0
    assert state["drawn"]["exposed"] == state["drawn"]["bars"] > 0
    unit = str(SHARDED.slots()[FORWARD])
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
        f"rank 1, step 3, {SHARDED.slots()[FORWARD + 1]}: 1 ms, all of it exposed"
    )
    assert "bucket" not in timeline.frame.locator("#middle").inner_text()
    assert timeline.frame.get_by_text("last bucket ready").is_hidden()
    timeline.press("Escape")


def test_a_row_of_other_collectives(timeline: Timeline) -> None:
    """Below the buckets, in the step that was sampled; a pointer over one has what it is."""
    timeline.choose("others")
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
