"""Comm Timeline on a million stages: how soon it shows them and how fast it redraws, in Chromium.

    made-up job --files--> TensorBoard --page--> headless Chromium <--mouse-- this process

Each sample of the first picture has a new TensorBoard, which has read nothing.  The clock starts
when the tab's frame does.  Needs playwright and Chromium.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hooktrace.commands.bench.table import Row
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job
from tests.browser.page import Timeline
from tests.browser.servers import tensorboard

_RANKS = 8
_JOB = SyntheticJob(
    ranks=_RANKS, steps=1280, model="net", hook="fp16_compress_hook",
    bucket_bytes=(4_000_000,) * 25, wire_share=0.5, wire_dtype="float16", bytes_per_second=3e8,
    late_ms={2: 2.0}, late_every=5, slow_every=97,
)  # fmt: skip
"""Eight ranks, 1,280 steps, 25 buckets of four stages, as nearly all wait in the queue."""


def timeline(*, quick: bool) -> Iterator[Row]:
    """Yield how soon the picture is there, how soon it is whole, and how fast it is drawn."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        logs, log = Path(folder, "logs"), Path(folder, "log")
        write_job(_JOB, logs)
        made = (now.completed(rank)[1] for now in simulate(_JOB) for rank in range(_RANKS))
        count = sum(len(bucket.stages) for buckets in made for bucket in buckets)
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        first, whole = [], []
        for _ in range(3 if quick else 9):
            with tensorboard(logs, log) as address:
                page, _ = _opened(browser, address)
                first.append(page.state()["firstPictureMs"])
                whole.append(page.state()["wholePictureMs"])
                page.page.close()
        note = f"{count} stages, {_RANKS} ranks"
        yield Row("Comm Timeline: first picture", first, "ms", budget=1000, note=note)
        yield Row("the same: the whole run is read and shown", whole, "ms", budget=2000)
        with tensorboard(logs, log) as address:
            yield _redraws(*_opened(browser, address), 30 if quick else 120)
        browser.close()


def _opened(browser: Any, address: str) -> tuple[Timeline, dict[str, Any]]:
    """Open the tab; return it, and its state when the whole run is drawn."""
    page = browser.new_page(viewport={"width": 1440, "height": 860})
    shown = Timeline(page, address, state="&p.hooktrace.whole=1")
    return shown, shown.wait("s.isWhole && !s.isBusy")


def _redraws(shown: Timeline, before: dict[str, Any], moves: int) -> Row:
    """Drag and zoom the whole run with the mouse; return the drawing time of its frames."""
    drawn, page = before["drawn"], shown.page
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
    after = shown.state()
    frames = after["frameMs"][before["frames"] - after["frames"] :]
    return Row("pan and zoom, whole run: drawing a frame", frames, "ms", budget=16, note=note)
