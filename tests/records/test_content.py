"""What several parts of a run hold together."""

from __future__ import annotations

from pathlib import Path

from hooktrace.records.reader import read_parts
from tests.exporters import records_sample as sample

from .text import encode


def test_parts_are_put_together(tmp_path: Path) -> None:
    """Layouts and clocks that a part repeats are there once; skipped lines say their part."""
    first, second = tmp_path / "a", tmp_path / "b"
    before = (sample.make_layout(), sample.make_clock())
    first.write_bytes(encode(sample.make_run(), [sample.make_step(0)], *before) + b"x\n")
    second.write_bytes(encode(sample.make_run(), [sample.make_step(1)], *before))
    whole = read_parts([first, second])
    assert [step.step for step in whole.steps] == [0, 1]
    assert (whole.assignments, whole.clocks) == ([before[0]], [before[1]])
    assert [reason.partition(":")[0] for _, reason in whole.skipped] == ["a"]
