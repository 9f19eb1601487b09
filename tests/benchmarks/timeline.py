"""Comm Timeline on a million stages: how soon it shows them and how fast it redraws, in Chromium.

    made-up job --files--> TensorBoard --page--> headless Chromium <--mouse-- this process

Each sample of the first picture has a new TensorBoard, which has read nothing.  The clock starts
when the tab's frame does.  Needs playwright and Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hooktrace.commands.bench.table import Row
from hooktrace.testing.synthetic import SyntheticJob, write_job

_DEADLINE_S = 120
_RANKS = 8
_JOB = SyntheticJob(
    ranks=_RANKS, steps=1280, model="net", hook="fp16_compress_hook",
    bucket_bytes=(4_000_000,) * 25, wire_share=0.5, wire_dtype="float16", bytes_per_second=3e8,
    late_ms={2: 2.0}, late_every=5, slow_every=97,
)  # fmt: skip
"""Eight ranks, 1,280 steps, 25 buckets of four stages, as nearly all wait in the queue."""


def timeline(*, quick: bool) -> Iterator[Row]:
    """Yield the rows; raises ``RuntimeError`` where Chromium or playwright is missing."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("Chromium is not installed; apt-get install chromium")
    if "hooktrace" not in entry_points(group="tensorboard_plugins").names:
        raise RuntimeError("TensorBoard has no Comm Timeline; pip install -e . again")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise RuntimeError("playwright is not installed; pip install playwright") from error
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        count = write_job(_JOB, Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        first, whole = [], []
        for _ in range(3 if quick else 9):
            with _tensorboard(Path(folder)) as address:
                page, frame = _open(browser, address)
                state = _wait(frame, "s.isWhole && !s.isBusy")
                first.append(state["firstPictureMs"])
                whole.append(state["wholePictureMs"])
                page.close()
        note = f"{count} stages, {_RANKS} ranks"
        yield Row("Comm Timeline: first picture", first, "ms", budget=1000, note=note)
        yield Row("the same: the whole run is read and shown", whole, "ms", budget=2000)
        with _tensorboard(Path(folder)) as address:
            page, frame = _open(browser, address)
            _wait(frame, "s.isWhole && !s.isBusy")
            yield _redraws(page, frame, 30 if quick else 120)
        browser.close()


def _redraws(page: Any, frame: Any, moves: int) -> Row:
    """Drag and zoom the whole run with the mouse; return the drawing time of its frames."""
    before = frame.evaluate("() => window.hooktraceTimeline.state()")
    drawn = before["drawn"]
    note = f"{drawn['bars']} bars, {drawn['stages']} stages, {drawn['bins']} merged"
    page.mouse.move(700, 400)
    page.mouse.down()
    for i in range(moves):
        page.mouse.move(700 + 3 * (i % 60), 400)
    page.mouse.up()
    page.keyboard.down("Control")
    for i in range(moves):
        page.mouse.wheel(0, -20 if i % 20 < 10 else 20)
    page.keyboard.up("Control")
    after = frame.evaluate("() => window.hooktraceTimeline.state()")
    frames = after["frameMs"][before["frames"] - after["frames"] :]
    return Row("pan and zoom, whole run: drawing a frame", frames, "ms", budget=16, note=note)


def _open(browser: Any, address: str) -> tuple[Any, Any]:
    page = browser.new_page(viewport={"width": 1440, "height": 860})
    page.goto(f"{address}/#hooktrace&p.hooktrace.whole=1")
    frame = page.wait_for_selector("iframe", timeout=1000 * _DEADLINE_S).content_frame()
    return page, frame


def _wait(frame: Any, condition: str) -> Any:
    state = "const t = window.hooktraceTimeline, s = t && t.state()"
    frame.wait_for_function(
        f"() => {{ {state}; return s && {condition}; }}", timeout=1000 * _DEADLINE_S
    )
    return frame.evaluate("() => window.hooktraceTimeline.state()")


@contextmanager
def _tensorboard(logdir: Path) -> Iterator[str]:
    """Serve ``logdir``; yields the address.  The process ends with the block."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        gives_up = threading.Timer(_DEADLINE_S, server.kill)
        gives_up.start()
        try:
            lines = iter(server.stderr or ())
            found = (re.search(r"http://\S+:\d+", line) for line in lines)
            address = next((match[0] for match in found if match), None)
            gives_up.cancel()
            if address is None:
                raise RuntimeError(
                    "TensorBoard did not start; run `tensorboard --logdir .` to see why"
                )
            yield address
        finally:
            gives_up.cancel()
            server.kill()
