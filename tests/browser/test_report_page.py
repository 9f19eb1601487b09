"""Report and comparison in a browser: nothing is clipped on small screens or on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hooktrace.analysis.compare.view import run_compare
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.runs import report_of
from tests.analysis.shown import page_of

pytestmark = pytest.mark.browser

_CLIPPED = """() => [...document.querySelectorAll(
    'h2, p, dd, li, td, th, .tile, .table, svg, text')]
  .filter(e => e.getClientRects().length)
  .filter(e => {
    const box = e.getBoundingClientRect();
    return box.right > innerWidth + 1 || box.left < -1
      || (e.clientWidth && e.scrollWidth > e.clientWidth + 1);
  }).map(e => e.tagName + ': ' + e.textContent.slice(0, 60))"""

LONG = SyntheticJob(
    ranks=70, steps=3, bucket_bytes=(400_000,) * 130, late_ms={37: 9.0}, error=1.4, error_every=2,
    model="a_model_with_a_very_long_name." * 6, hook="Factory.a_hook_that_somebody_named_well_" * 5,
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", ["report", "compare"])
def test_nothing_is_clipped_on_a_small_screen_and_on_paper(
    browser: Any, tmp_path: Path, kind: str
) -> None:
    """Long names, 70 ranks, 130 buckets; a small dark screen, then paper in its colours."""
    file = tmp_path / "page.html"
    if kind == "report":
        write_job(LONG, tmp_path)
        file.write_text(page_of(report_of(tmp_path)))
    else:
        few = replace(LONG, ranks=4, steps=60, error=None, bucket_bytes=(400_000,) * 30)
        names = [tmp_path / ("one" * 30), tmp_path / ("other" * 20)]
        for name, wire_share in zip(names, (1.0, 0.5), strict=True):
            write_job(replace(few, wire_share=wire_share), name)
        run_compare([*map(str, names)], html=file)
    shown = browser.new_page(viewport={"width": 800, "height": 600}, color_scheme="dark")
    shown.goto(file.as_uri())
    for ground in ("rgb(17, 21, 27)", "rgb(255, 255, 255)"):
        assert shown.evaluate(_CLIPPED) == []
        assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == ground
        shown.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
        shown.emulate_media(media="print", color_scheme="dark")
    shown.close()
