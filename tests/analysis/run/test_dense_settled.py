"""Which steps enter statistics, and what is said where none does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report.tables import kind_table, unit_table
from hooktrace.records import CompletedStep
from hooktrace.records.codec import RecordEncoder
from tests.analysis.report.jobs import facts_of, report_of
from tests.analysis.report.sharded_jobs import ShardedJob, write_sharded
from tests.analysis.run.files import run_of, text_of, write_ranks
from tests.analysis.shown import named
from tests.exporters.records_sample import MODEL, looked_at, make_step


def warming_up(completed: CompletedStep) -> CompletedStep:
    step, buckets = completed
    return replace(step, warmup=True), tuple(replace(b, warmup=True) for b in buckets)


@pytest.mark.parametrize(
    ("change", "said"),
    [(warming_up, "no step has settled"), (looked_at, "hooktrace looked at a bucket in every")],
)
def test_a_model_without_a_step_that_counts_is_said(
    change: Callable[[CompletedStep], CompletedStep], said: str, tmp_path: Path
) -> None:
    """There are no numbers; as of a run in debug mode, in which every step is probed."""
    write_ranks(tmp_path, {0: text_of(run_of(0), [change(make_step(i)) for i in range(1, 5)])})
    report = report_of(tmp_path)
    assert report.models == []
    assert any(f"model {MODEL}: {said}" in line for line in report.missing)


def test_a_sharded_model_that_does_not_learn_is_told_how_to_be_none(tmp_path: Path) -> None:
    """A teacher that is called with gradients: it is gathered, and no step of it ends."""
    job = ShardedJob(steps=1)
    for rank, ((step, calls),) in enumerate(job.completed()):
        encoder = RecordEncoder()
        gathers = [c for c in calls if c.unit is not None and c.unit.collective == "all_gather"]
        records = (job.run(rank), job.layout())
        lines = [*map(encoder.record, records), encoder.buckets(gathers)]
        lines.append(encoder.record(replace(step, complete=False)))
        write_ranks(tmp_path, {rank: b"".join(lines).decode()})
    report = report_of(tmp_path)
    assert report.models == []
    assert any("model net: parameters were gathered and no gradients" in m for m in report.missing)


def test_a_sharded_step_with_more_collectives_leaves_out_no_other(tmp_path: Path) -> None:
    """Once the model is called twice before backward; sums are of the steps that are usual."""
    write_sharded(ShardedJob(), tmp_path / "usual")
    write_sharded(ShardedJob(odd=(22,)), tmp_path / "odd")
    usual, odd = facts_of(tmp_path / "usual"), facts_of(tmp_path / "odd")
    assert (usual.steps, odd.steps) == (30, 30)
    assert [(k.fewest, k.count, k.most) for k in odd.kinds] == [(5, 5, 10), (4, 4, 4), (5, 5, 5)]
    for ours, theirs in zip(odd.kinds, usual.kinds, strict=True):
        assert (ours.payload_bytes, ours.exposed_ns) == (theirs.payload_bytes, theirs.exposed_ns)
    assert [row[1] for row in kind_table(odd).rows] == ["5-10", "4", "5"]
    assert [b.share_of_steps for b in odd.buckets] == [1.0] * 14 + [1 / 30] * 5
    (model,) = report_of(tmp_path / "odd").models
    assert "several kinds" in " ".join(model.findings[0].evidence)
    assert (model.source.left_out, model.source.gradient_bytes) == ({}, 5 * 12_000_000)
    assert [row["steps"] for row in named(unit_table(odd))[-6:]] == ["100 %", *["3.3 %"] * 5]
    assert "steps" not in named(unit_table(usual))[0]
