"""The tables of a sharded model, and the terminal and the page that show them."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.report.tables import kind_table, unit_table
from tests.analysis.report.jobs import facts_of, report_of
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.shown import named, page_of, printed

ALLOWED = ("units take the place of buckets",)
"""Where the word is right."""


def without_allowed(text: str) -> str:
    """Return text but for what may speak of buckets."""
    for words in ALLOWED:
        text = text.replace(words, "")
    return text


def test_a_row_a_kind_and_a_row_a_call(tmp_path: Path) -> None:
    """With the share of the step that is exposed."""
    write_sharded(ShardedJob(), tmp_path)
    facts = facts_of(tmp_path)
    kinds = kind_table(facts)
    assert [row[:3] for row in kinds.rows] == [
        ["all-gather (forward)", "5", "20.00"],
        ["all-gather (backward)", "4", "16.00"],
        ["reduce-scatter", "5", "60.00"],
    ]
    units = named(unit_table(facts))
    row = units[1]
    assert (row["no."], row["unit"], row["collective"]) == ("1", "blocks.0", "all-gather (forward)")
    assert (row["payload"], row["time"], row["exposed"]) == ("4.00", "8.20", "8.20")
    assert (units[-1]["unit"], units[-1]["collective"]) == ("<root>", "reduce-scatter")

    unit = facts.buckets[1].unit
    assert unit is not None
    long = replace(unit, name="model.language_model.transformer.layers.11.mlp", turn=2)
    other = replace(facts, buckets=[replace(facts.buckets[1], unit=long)])
    (row,) = named(unit_table(other))
    assert (row["unit"], row["collective"]) == (long.name, "all-gather (forward) #3")


def test_terminal_and_page_speak_of_units(tmp_path: Path) -> None:
    """Nowhere of buckets, of backward that hides, or of hooks' calls; a picture's tips neither."""
    write_sharded(ShardedJob(late_ms={1: 1.0}), tmp_path)
    report = report_of(tmp_path)
    text = without_allowed(printed(report))
    for word in ("bucket", "last gradient", "with the backward"):
        assert word not in text
    for word in ("Collectives of a step, by kind", "steps on 3 ranks", "reduce-scatter"):
        assert word in text
    html = re.sub(r"<style>.*?</style>", "", page_of(report), flags=re.DOTALL)
    html = without_allowed(html)
    for word in ("bucket", "last gradient", 'class="exposed"', 'class="ended"'):
        assert word not in html
    for word in (
        "<h3>Units: medians of",
        "training stands still wherever",
        "overlap with computing",
    ):
        assert word in html
