"""Which steps enter statistics, and what is said where none does."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.analysis.report.jobs import report_of
from tests.analysis.timeline.files import run_of, steps_of, text_of, write_ranks
from tests.exporters.records_sample import MODEL, looked_at, make_step


def test_a_model_that_never_settled_is_said(tmp_path: Path) -> None:
    """Only warm-up steps: no numbers, and a sentence."""
    steps = [
        (replace(step, warmup=True), tuple(replace(b, warmup=True) for b in buckets))
        for step, buckets in steps_of(2)
    ]
    write_ranks(tmp_path, {0: text_of(run_of(0), steps)})
    report = report_of(tmp_path)
    assert report.models == []
    assert any(f"model {MODEL}: no step has settled" in line for line in report.missing)


def test_a_model_of_which_every_step_was_probed_is_said(tmp_path: Path) -> None:
    """As in debug mode: there are no times of training as it is, and that is the reason."""
    texts = {0: text_of(run_of(0), [looked_at(make_step(i)) for i in range(1, 5)])}
    write_ranks(tmp_path, texts)
    report = report_of(tmp_path)
    assert report.models == []
    assert any(f"model {MODEL}: hooktrace looked at a bucket in every" in m for m in report.missing)
