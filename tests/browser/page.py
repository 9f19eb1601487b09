"""The tab as a test sees it: what it says it drew, its pixels, the pointer and the keys."""

from __future__ import annotations

import math
from typing import Any

DEADLINE_MS = 40_000
_SETTLED = """(run) => {
  const t = window.hooktraceTimeline, s = t && t.state();
  return s && (!run || s.run === run) && s.isWhole && !s.isBusy && s.drawn.ranks > 0;
}"""
_PIXELS = """([id, x, y, width, height]) => {
  const ratio = devicePixelRatio, canvas = document.getElementById(id);
  const { data } = canvas.getContext("2d").getImageData(
    x * ratio, y * ratio, Math.max(1, width * ratio), Math.max(1, height * ratio));
  return Array.from({ length: data.length / 4 }, (_, i) => "#" + [0, 1, 2]
    .map((k) => data[4 * i + k].toString(16).padStart(2, "0")).join(""));
}"""


class Timeline:
    """The tab, opened at a TensorBoard's address.  ``page_errors``: of any script of the page.

    ``address``: ``None`` reloads the page; ``state``: of the tab, as ``address.js`` tells.
    """

    def __init__(self, page: Any, address: str | None, *, state: str = "") -> None:
        self.page = page
        self.page_errors: list[str] = []
        page.set_default_timeout(DEADLINE_MS)
        page.on("pageerror", lambda error: self.page_errors.append(str(error)))
        if address is None:
            page.reload()
        else:
            page.goto(f"{address}/#hooktrace{state}")
        page.wait_for_selector("iframe", state="attached")
        handle = page.wait_for_selector('iframe[src*="name=hooktrace"], iframe')
        self.frame = handle.content_frame()
        try:
            self.frame.wait_for_function("() => window.hooktraceTimeline")
        except Exception as error:
            raise AssertionError(f"the page did not start: {self.page_errors}") from error

    def settle(self, run: str | None = None) -> dict[str, Any]:
        """Wait until the whole run is read and drawn; returns the state."""
        self.frame.wait_for_function(_SETTLED, arg=run)
        return self.state()

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.frame.evaluate("() => window.hooktraceTimeline.state()")
        return found

    def wait(self, condition: str) -> dict[str, Any]:
        """Wait for a condition in JavaScript on the state ``s``; returns the state."""
        self.frame.wait_for_function(
            f"() => {{ const s = window.hooktraceTimeline.state(); return {condition}; }}"
        )
        return self.state()

    def choose(self, run: str) -> dict[str, Any]:
        self.frame.wait_for_function(
            "(run) => [...document.querySelectorAll('#run option')].some((o) => o.value === run)",
            arg=run,
        )
        self.frame.select_option("#run", run)
        return self.whole(run)

    def whole(self, run: str | None = None) -> dict[str, Any]:
        """Show the whole run, without the pointer."""
        self.settle(run)
        self.frame.locator("#fit").dispatch_event("click")
        self.frame.wait_for_function("() => window.hooktraceTimeline.state().mode === 'fit'")
        return self.settle(run)

    def step(self, number: int) -> dict[str, Any]:
        self.frame.evaluate("(n) => window.hooktraceTimeline.goToStep(n)", number)
        self.frame.wait_for_function("() => window.hooktraceTimeline.state().mode === 'free'")
        return self.settle()

    def press(self, key: str) -> dict[str, Any]:
        self.page.keyboard.press(key)
        return self.settle()

    def located(self, rank: int, step: int, bucket: int) -> dict[str, float]:
        """Return the middle and the width of a bucket's bar on the canvas."""
        found: dict[str, float] | None = self.frame.evaluate(
            "([r, s, b]) => window.hooktraceTimeline.locate(r, s, b)", [rank, step, bucket]
        )
        assert found is not None, "the bucket has no bar of its own"
        return found

    def place(self, rank: int, step: int, bucket: int) -> tuple[float, float]:
        """Return where a bucket's bar is on the page."""
        at = self.located(rank, step, bucket)
        box = self.frame.locator("#lanes").bounding_box()
        return box["x"] + at["x"], box["y"] + at["y"]

    def pixels(
        self, x: float, y: float, width: float = 1, height: float = 1, *, canvas: str = "lanes"
    ) -> list[str]:
        """Return the colours in a box of a canvas, as #rrggbb."""
        found: list[str] = self.frame.evaluate(_PIXELS, [canvas, x, y, width, height])
        return found

    def colors(self, rank: int, step: int, bucket: int) -> set[str]:
        """Return the colours on the line through a bucket's bar."""
        at = self.located(rank, step, bucket)
        return set(self.pixels(at["x"] - at["width"] / 2, at["y"] + 3, math.ceil(at["width"])))

    def text(self, selector: str) -> str:
        found: str = self.frame.locator(selector).inner_text()
        return found
