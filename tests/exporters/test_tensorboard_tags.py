"""Which group a scalar is in, and what it means."""

from __future__ import annotations

from hooktrace.exporters.tensorboard_tags import (
    FIRST,
    MEANINGS,
    group_of,
    meaning_of,
    tag_of,
)


def test_exposed_overlap_and_period_come_first() -> None:
    """TensorBoard sorts groups by name, and tags within them."""
    group = group_of("net")
    names = ["wire_bytes", "error_bucket3", "anomalies_total", *FIRST, "bucket_ms", "busbw_GBps"]
    tags = sorted(tag_of(group, name) for name in names)
    assert sorted(tags, key=lambda tag: (tag.partition("/")[0], tag))[:3] == [
        "hooktrace.net/exposed_ms", "hooktrace.net/overlap_ratio", "hooktrace.net/step_period_ms",
    ]  # fmt: skip
    assert tag_of(group, "error_bucket3") == "hooktrace.net.error/error_bucket3"


def test_each_scalar_has_its_meaning() -> None:
    """Also of each bucket; what is of no model has none."""
    meanings = dict(MEANINGS)
    assert meaning_of("hooktrace.a/exposed_ms") == meanings["exposed_ms"]
    assert meaning_of("hooktrace.a.error/error_bucket17") == meanings["error_bucket*"]
    assert meaning_of("hooktrace/records_lost.late") == ""
