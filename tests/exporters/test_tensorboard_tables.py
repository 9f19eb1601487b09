"""Markdown tables for TensorBoard, whose names must not become markup."""

from __future__ import annotations

from msgspec.structs import replace
from tensorboard.plugin_util import markdown_to_safe_html

from hooktrace.exporters.tensorboard_tables import assignment_table
from hooktrace.records import Parameter
from hooktrace.testing.synthetic_shards import ShardedJob
from tests.exporters.records_sample import make_layout


def test_an_assignment_table_has_a_row_for_each_bucket_and_cuts_long_lists() -> None:
    layout = make_layout()
    wide = replace(
        layout.buckets[0], parameters=(Parameter("w|<b>_x_", (2, 3)), *[Parameter("p", ())] * 60)
    )
    lines = assignment_table(replace(layout, buckets=(wide,) * 201)).splitlines()
    assert lines[0].startswith("**Rebuild 1**: 201 buckets, 804000 bytes of gradients")
    assert lines[4].startswith(
        "0 | float32 | cpu | 1000 | 4000 | 61 | w&#124;&#60;b&#62;&#95;x&#95; (2x3), p (scalar)"
    )
    assert lines[4].endswith("and 21 more")
    assert (len(lines), lines[-1]) == (4 + 200 + 2, "1 more buckets are not shown.")
    html = markdown_to_safe_html("\n".join(lines))
    assert (html.count("<table>"), html.count("<tr>")) == (1, 1 + 200)


def test_a_long_list_of_units_is_cut_too() -> None:
    """What a short one says is in ``golden/``."""
    layout = ShardedJob(units=("<root>",)).layout()
    many = assignment_table(replace(layout, buckets=layout.buckets[:1] * 201))
    assert many.endswith("\n\n1 more collectives are not shown.")
