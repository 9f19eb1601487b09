"""The tables of a sharded model, and the terminal and the page that show them."""

from __future__ import annotations

import io
import re
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from hooktrace.analysis.report.page import page
from hooktrace.analysis.report.tables import kind_columns, unit_columns
from hooktrace.analysis.report.terminal import print_report
from tests.analysis.report.jobs import facts_of, report_of
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded

ALLOWED = ("units take the place of buckets",)
"""Where the word is right."""


def without_allowed(text: str) -> str:
    """Return text but for what may speak of buckets."""
    for words in ALLOWED:
        text = text.replace(words, "")
    return text


def test_a_row_a_kind_and_a_row_a_call(tmp_path: Path) -> None:
    """With the share of the step that is exposed; a long name keeps its end."""
    write_sharded(ShardedJob(), tmp_path)
    facts = facts_of(tmp_path)
    kinds = kind_columns(facts)
    assert [row[:3] for row in kinds.rows] == [
        ["all-gather (forward)", "5", "20.00"],
        ["all-gather (backward)", "4", "16.00"],
        ["reduce-scatter", "5", "60.00"],
    ]
    units = unit_columns(facts)
    row = dict(zip(units.names, units.rows[1], strict=True))
    assert (row["no."], row["unit"], row["collective"]) == ("1", "blocks.0", "all-gather (forward)")
    assert (row["payload"], row["time"], row["exposed"]) == ("4.00", "8.20", "8.20")
    assert units.rows[-1][1:3] == ["<root>", "reduce-scatter"]

    unit = facts.buckets[1].unit
    assert unit is not None
    named = replace(unit, name="model.language_model.transformer.layers.11.mlp", turn=2)
    columns = unit_columns(facts, [replace(facts.buckets[1], unit=named)])
    assert columns.rows[0][1].endswith(".layers.11.mlp")
    assert columns.rows[0][1].startswith("\u2026")
    assert columns.rows[0][2] == "all-gather (forward) #3"


def test_terminal_and_page_speak_of_units(tmp_path: Path) -> None:
    """Nowhere of buckets, of backward that hides, or of hooks' calls; a picture's tips neither."""
    write_sharded(ShardedJob(late_ms={1: 1.0}), tmp_path)
    report = report_of(tmp_path)
    out = io.StringIO()
    print_report(Console(file=out, width=200, highlight=False, markup=False), report)
    text = without_allowed(out.getvalue())
    for word in ("bucket", "last gradient", "with the backward"):
        assert word not in text
    for word in ("Collectives of a step, by kind", "steps on 3 ranks", "reduce-scatter"):
        assert word in text
    html = re.sub(r"<style>.*?</style>", "", page(report), flags=re.DOTALL)
    html = without_allowed(html)
    for word in ("bucket", "last gradient", 'class="exposed"', 'class="ended"'):
        assert word not in html
    for word in (
        "<h3>Units</h3>",
        "training stands still wherever",
        "overlap with computing",
    ):
        assert word in html
