"""What a report says is missing."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.analysis.report.jobs import (
    report_of,
)
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.exporters.records_sample import MODEL, make_step, opaque


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """A rank without a file, a killed one, an unreadable line, a step cut short, another run."""
    step, buckets = make_step(1)
    broken = text_of(
        run_of(0, world_size=5), [make_step(0), (replace(step, complete=False), buckets)]
    )
    lines = broken.splitlines(keepends=True)
    lines.insert(3, "rubbish\n")
    texts = {
        0: "".join(lines),
        1: text_of(run_of(1, world_size=5), steps_of(2), ended=False),
        2: text_of(run_of(2, run_id="older"), steps_of(1)),
    }
    write_ranks(tmp_path, texts)
    said = "\n".join(report_of(tmp_path).missing)
    assert "ranks 3, 4: no record file; the run has 5 ranks" in said
    assert "rank 1: the file has no end" in said
    assert "rank 2: the file is of an earlier run" in said
    assert "rank 0: line 4 could not be read (not JSON" in said
    assert "rank 0: steps that are not complete, out of all numbers: 1" in said


def test_it_is_said_why_nobody_knows_what_a_hook_sends(tmp_path: Path) -> None:
    """With the reason of most sampled steps."""
    whys = ["it is off", None, "it is full", "it is off"]
    steps = []
    for i, why in enumerate(whys):
        step, buckets = opaque(make_step(i), sent=None)
        steps.append((replace(step, sent_unknown=why), buckets))
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    said = f"rank 0: what {MODEL} sends is not known, in 2 sampled steps: it is off"
    assert said in report_of(tmp_path).missing
