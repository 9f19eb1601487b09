"""Which group a scalar is in, and what it means."""

from __future__ import annotations

from hooktrace.exporters.tensorboard_tags import MEANINGS, meaning_of


def test_each_scalar_has_its_meaning() -> None:
    """Also of each bucket; what is of no model has none."""
    meanings = dict(MEANINGS)
    assert meaning_of("hooktrace.a/exposed_ms") == meanings["exposed_ms"]
    assert meaning_of("hooktrace.a.error/error_bucket17") == meanings["error_bucket*"]
    assert meaning_of("hooktrace/records_lost.late") == ""
