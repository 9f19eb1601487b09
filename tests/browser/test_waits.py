"""What is drawn of waiting: hatched bars, arrows, the list.

All of one made-up job whose rank 2 is 12 ms late, so that it is known what must be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hooktrace.testing.synthetic import SyntheticJob, write_job

from .page import Timeline
from .servers import one_page

pytestmark = pytest.mark.browser

LATE = SyntheticJob(ranks=4, steps=12, late_ms={2: 12.0}, jitter_ms=0.0)
WIRE, WIRE_DARK = "#0072b2", "#2f8fd8"
FASTER = SyntheticJob(
    ranks=2, steps=8, jitter_ms=0.0, forward_ms=25.0, hook="fp16_compress_hook", wire_share=0.5
)


@pytest.fixture(scope="module")
def timeline(
    site: Path, browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Timeline]:
    logs = tmp_path_factory.mktemp("waits")
    write_job(LATE, logs / "late")
    write_job(FASTER, logs / "faster")
    with one_page(site, browser, logs, "late") as page:
        yield page


def share_of_wire(timeline: Timeline, rank: int, bucket: int, part: tuple[float, float]) -> float:
    """Return the share of a part of a bar's lower half that has the wire's full colour."""
    at, (begin, end) = timeline.located(rank, 5, bucket), part
    x, width = at["x"] + (begin - 0.5) * at["width"], (end - begin) * at["width"]
    found = timeline.pixels(x, at["y"] + 1, width, 2)
    return found.count(WIRE) / len(found)


def test_the_part_that_waits_is_hatched_and_the_transfer_solid(timeline: Timeline) -> None:
    """12 of 16 ms on ranks 0, 1 and 3; nothing on the rank that they wait for."""
    drawn = timeline.step(5)["drawn"]
    assert drawn["waits"] == 3 * 8
    for rank in (0, 3):
        assert 0.1 < share_of_wire(timeline, rank, 3, (0.3, 0.7)) < 0.7
        assert share_of_wire(timeline, rank, 3, (0.78, 0.98)) > 0.95
    assert share_of_wire(timeline, 2, 3, (0.7, 0.9)) > 0.95
    assert "wait" in timeline.text("#legend")


def test_arrows_lead_to_all_that_waited(timeline: Timeline) -> None:
    """Of each bucket of one step to three ranks; of the whole run there are none."""
    assert timeline.step(5)["drawn"]["arrows"] == 3 * 8
    assert timeline.press("0")["drawn"]["arrows"] == 0


def test_the_late_rank_is_told(timeline: Timeline) -> None:
    """In the list, on its bars, and in their tooltip."""
    assert "rank 2: last in 100 % of the steps" in timeline.text("#late")
    assert timeline.step(5)["drawn"]["late"] == 8
    timeline.page.mouse.move(*timeline.place(2, 5, 1))
    timeline.frame.wait_for_selector("#tooltip .names")
    assert "12.000 ms (±" in timeline.text("#tooltip")


SWATCHES = """() => Object.fromEntries([...document.querySelectorAll("#tooltip .stages th")]
    .map((th) => [th.textContent, getComputedStyle(th.firstChild).backgroundColor]))"""


def test_a_tooltips_stages_have_the_colours_of_the_bars(timeline: Timeline) -> None:
    """In light and in dark, which follows TensorBoard's switch, and not the system's setting."""
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


def test_the_tooltip_says_for_whom_a_bucket_waits(timeline: Timeline) -> None:
    timeline.step(5)
    timeline.page.mouse.move(*timeline.place(1, 5, 3))
    timeline.frame.wait_for_selector("#tooltip .waiting")
    assert timeline.text("#tooltip .waiting") == "waits 12.0 ms for rank 2"
    assert "wire: transfer" in timeline.text("#tooltip")


def test_the_list_says_for_whom_ranks_wait(timeline: Timeline) -> None:
    assert "for rank 2" in timeline.text("#waiting")


def test_the_box_by_a_resting_pointer_is_of_what_lies_under_it(timeline: Timeline) -> None:
    """The picture moved below it: another bucket, or none; never the one that was there before."""
    timeline.choose("late")
    timeline.step(5)
    timeline.page.mouse.move(*timeline.place(0, 5, 2))
    timeline.frame.wait_for_selector("#tooltip", state="visible")
    timeline.step(6)
    hovered = timeline.state()["hovered"]
    is_shown = timeline.frame.locator("#tooltip").is_visible()
    assert is_shown == (hovered is not None)
    assert hovered is None or hovered["step"] == 6
    timeline.page.mouse.move(*timeline.place(0, 6, 2))
    timeline.frame.wait_for_selector("#tooltip", state="visible")
    timeline.choose("faster")
    timeline.frame.wait_for_selector("#tooltip", state="hidden")
    assert timeline.state()["hovered"] is None
