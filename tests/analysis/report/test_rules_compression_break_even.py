"""From which bandwidth on a hook stops paying: bytes saved over time added."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hooktrace.analysis.report.rules_compression import break_even, hook_lines, pays_below
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.report.jobs import model_of

HALF = SyntheticJob(
    ranks=2, steps=20, bucket_bytes=(4_000_000,) * 8, hook="fp16_compress_hook", wire_share=0.5,
    codec_ms=1.0,
)  # fmt: skip


def test_half_of_the_bytes_for_two_milliseconds_a_bucket(tmp_path: Path) -> None:
    """2 MB saved a bucket, 1 ms to compress and 1 ms to decompress it."""
    facts = model_of(HALF, tmp_path)
    assert pays_below(facts) == pytest.approx(1e9, rel=0.02)
    ((name, text),) = hook_lines(facts)
    assert name == "break-even"
    assert "on a faster link fp16_compress_hook costs more than it saves" in text
    assert "16.00 MB less a step, 16.0 ms to compress and decompress" in text


@pytest.mark.parametrize(
    "fields",
    [{"wire_share": 1.0}, {"codec_ms": 0.0}, {"hook": "hook_then_optimizer(fp16)"}, {"ranks": 1}],
    ids=lambda fields: next(iter(fields)),
)
def test_nothing_is_said_where_nothing_is_saved_or_known(
    fields: dict[str, object], tmp_path: Path
) -> None:
    """Nor of a hook whose decompress holds the optimizer's step, and of one rank without a link."""
    facts = model_of(dataclasses.replace(HALF, **fields), tmp_path)  # type: ignore[arg-type]
    assert list(hook_lines(facts)) == []


def test_neither_side_of_the_ratio_may_be_missing() -> None:
    assert break_even(2e6, 2e6) == 1e9
    assert [break_even(*sides) for sides in ((0, 1), (1, 0), (None, 1), (-1, 1), (1, -1))] == (
        [None] * 5
    )
