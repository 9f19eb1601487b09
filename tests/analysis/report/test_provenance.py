"""What a report is of: run, hook, buckets, and which steps count, or why they do not."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.provenance import model_lines
from hooktrace.analysis.report.run_report import report_json
from hooktrace.records import CompletedStep
from hooktrace.testing.rank_file import rank_file
from hooktrace.testing.synthetic import SyntheticJob, simulate, write_job
from tests.analysis.report.jobs import write_changed
from tests.analysis.run.files import write_ranks
from tests.analysis.runs import run_in

JOB = SyntheticJob(ranks=2, steps=30, error=0.1, error_every=10, bucket_bytes=(4_000_000,) * 3)


def test_the_run_and_what_it_was_told(tmp_path: Path) -> None:
    """Options and cap as the layout has them; the path as it was given."""
    told = (("matrix_approximation_rank", 2), ("warm_start", True))
    layout = replace(JOB.layout(), hook_options=told, bucket_cap_bytes=int(0.1 * 2**20))
    texts = {}
    for rank in range(2):
        steps = [step.completed(rank) for step in simulate(JOB)]
        texts[rank] = rank_file([JOB.run(rank), layout], steps).decode()
    write_ranks(tmp_path, texts)
    report = build_report(run_in(tmp_path), path="runs/a")
    assert dict(model_lines(report.models[0].source)) == {
        "hook's options": "matrix_approximation_rank=2, warm_start=True",
        "bucket_cap_mb": "0.1",
        "parameters": "3 with 3,000,000 elements, 12.00 MB of gradients",
        "steps": "27 of 30 count; left out: 3 probed by hooktrace",
    }
    content = json.loads(report_json(report))
    assert content["source"] == {
        "path": "runs/a", "begun": "2026-11-18 11:06:40+00:00", "hosts": ["host-0"],
    }  # fmt: skip
    assert content["models"][0]["source"]["hook_options"][0] == ["matrix_approximation_rank", 2]


def test_steps_that_were_probed_are_so_many_everywhere(tmp_path: Path) -> None:
    """Step 1 is not settled on rank 0, and 4 probed on rank 1 alone, so it counts on the other."""

    def change(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        if step.step == 1:
            return replace(step, warmup=rank == 0, probed=True), buckets
        return (replace(step, probed=rank == 1), buckets) if step.step == 4 else completed

    write_changed(tmp_path, JOB, change)
    report = build_report(run_in(tmp_path))
    (model,) = report.models
    assert (model.source.counted, model.source.left_out) == (26, {"warmup": 1, "probed": 3})
    assert model.facts.probed == 3
    assert "; 3 probed steps are not among them" in report_json(report)


def test_what_files_do_not_say_is_not_known(tmp_path: Path) -> None:
    """Of files from before these fields."""
    write_job(JOB, tmp_path)
    assert not any("hook_options" in path.read_text() for path in tmp_path.rglob("*.jsonl"))
    (model,) = build_report(run_in(tmp_path)).models
    said = dict(model_lines(model.source))
    assert said["hook's options"] == "none recorded"
    assert said["bucket_cap_mb"].startswith("not recorded")
