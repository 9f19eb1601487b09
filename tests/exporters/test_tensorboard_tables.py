"""Markdown tables for TensorBoard, whose names must not become markup."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace
from tensorboard.plugin_util import markdown_to_safe_html

from hooktrace.exporters.tensorboard_tables import anomaly_table, layout_table
from hooktrace.records import Parameter
from hooktrace.testing.synthetic_shards import ShardedJob
from tests.exporters.records_sample import make_anomaly, make_layout


def test_a_layout_table_has_a_row_for_each_bucket_and_cuts_long_lists() -> None:
    layout = make_layout()
    wide = replace(
        layout.buckets[0], parameters=(Parameter("w|<b>_x_", (2, 3)), *[Parameter("p", ())] * 60)
    )
    lines = layout_table(replace(layout, buckets=(wide,) * 201)).splitlines()
    assert lines[0].startswith("**Generation 1**: 201 buckets, 804000 bytes of gradients")
    assert lines[4].startswith(
        "0 | float32 | cpu | 1000 | 4000 | 61 | w&#124;&#60;b&#62;&#95;x&#95; (2x3), p (scalar)"
    )
    assert lines[4].endswith("and 21 more")
    assert (len(lines), lines[-1]) == (4 + 200 + 2, "1 more buckets are not shown.")
    html = markdown_to_safe_html("\n".join(lines))
    assert (html.count("<table>"), html.count("<tr>")) == (1, 1 + 200)


def test_a_layout_of_units_says_their_kind() -> None:
    """By name, and not by a bucket's number; long lists are cut here too."""
    layout = ShardedJob(units=("<root>", "a_"), micro_steps=2).layout()
    lines = layout_table(layout).splitlines()
    assert lines[0] == (
        "**2 units**, with 8 different collectives so far, hook fully_shard. Of an all-gather "
        "elements and bytes are this rank's parameters."
    )
    assert lines[2].startswith("unit | collective | phase | call of the step | dtype")
    assert lines[5] == (
        "a&#95; | all-gather | forward | 1 | float32 | cpu | 500000 | 2000000 "
        "| 1 | a&#95;.weight (1000000)"
    )
    assert lines[7].startswith("&#60;root&#62; | all-gather | forward | 2 |")
    assert not [line for line in lines if "bucket" in line]
    many = layout_table(replace(layout, buckets=layout.buckets[:1] * 201))
    assert many.endswith("\n\n1 more collectives are not shown.")


def test_an_anomaly_table_begins_with_the_latest() -> None:
    """Above it stands how many there were in all."""
    anomalies = deque(replace(make_anomaly(step), message=f"m{step}|") for step in (1, 2))
    head, _, columns, _, first, second = anomaly_table(anomalies, 70).splitlines()
    assert head == "**70 anomalies**, the latest 2 first"
    assert columns == "step | generation | bucket | stage | kind | message"
    assert (first[0], second[0]) == ("2", "1")
    assert first.endswith("m2&#124;")
