"""One number a step, the mean of its ranks; and the loss that a script wrote for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.analysis.compare import measure
from hooktrace.analysis.compare.measure import Series, is_loss, loss_difference, losses
from hooktrace.records import CompletedStep
from hooktrace.records.files import find_records
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import facts_of, write_changed
from tests.analysis.runs import job_run, run_in


def test_errors_of_steps_that_do_not_settle_are_left_out(tmp_path: Path) -> None:
    """As the report's are: a step that broke off says nothing of the hook."""

    def broken(rank: int, completed: CompletedStep) -> CompletedStep:
        step, buckets = completed
        return replace(step, complete=step.step != 25), buckets

    write_changed(tmp_path, SyntheticJob(ranks=2, steps=60, error=0.01), broken)
    one = measure(run_in(tmp_path), "synthetic", "a")
    assert one is not None
    assert one.series["error"].steps.tolist() == [50]
    counts = [bucket.error.count for bucket in facts_of(tmp_path).buckets if bucket.error]
    assert counts == [2]  # of either rank


def test_nothing_settled_is_none(tmp_path: Path) -> None:
    """Of another model."""
    assert measure(job_run(SyntheticJob(ranks=1, steps=3), tmp_path), "another", "a") is None


def test_steps_whose_buckets_are_of_another_generation_have_no_parts(tmp_path: Path) -> None:
    """A damaged file: step times are compared all the same."""
    job = SyntheticJob(ranks=2, steps=6)
    write_job(job, tmp_path)
    for (path,) in find_records(tmp_path).values():
        lines = path.read_bytes().splitlines(keepends=True)
        at = b'"generation":%d'
        damaged = [x.replace(at % 1, at % 2) if b'"kind":"step"' in x else x for x in lines]
        path.write_bytes(b"".join(damaged))
    found = measure(run_in(tmp_path), job.model, "a")
    assert found is not None
    assert len(found.series["period"].values) > 0
    assert len(found.parts.period) == 0


def write_scalars(logdir: Path, tag: str, values: np.ndarray) -> None:
    """As training scripts do."""
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(logdir) as writer:
        for step, value in enumerate(values.tolist()):
            writer.add_scalar(tag, value, step)


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("loss", True), ("train/loss", True), ("train_loss", True), ("Loss/train", True),
        ("eval/loss/epoch", True), ("glossary", False), ("lossless", False),
        ("hooktrace/loss", False), ("loss/a/b", False),
    ],
)  # fmt: skip
def test_tags_like_loss(tag: str, expected: bool) -> None:
    """As people call it, and not hooktrace's own."""
    assert is_loss(tag) == expected


def series(values: np.ndarray, first: int = 0) -> Series:
    return Series(np.arange(first, first + len(values), dtype=np.float64), values)


def test_equal_steps_of_the_later_half_are_compared() -> None:
    """What came before, and what one run alone has, is not."""
    falling = np.linspace(5, 1, 200)
    noise = np.random.default_rng(0).exponential(0.01, 100)
    higher = np.concatenate([falling[:100] + 3, falling[100:] + noise, np.full(50, 9.0)])
    a, b = ({"train/loss": series(values)} for values in (falling, higher))
    tag, found, why = loss_difference(a, b)
    assert (tag, why) == ("train/loss", None)
    assert found is not None
    assert found.differs
    assert found.difference == pytest.approx(noise.mean())
    assert found.a is not None
    assert found.b == pytest.approx(found.a + noise.mean())
    assert found.share == pytest.approx(noise.mean() / falling[100:].mean())


def test_why_there_is_none() -> None:
    """One sentence each."""
    some = {"loss": series(np.ones(9))}
    assert "no TensorBoard scalar like loss" in str(loss_difference({}, {})[2])
    assert "only one of the runs" in str(loss_difference(some, {})[2])
    assert "no tag in common: loss; a/loss" in str(
        loss_difference(some, {"a/loss": series(np.ones(9))})[2]
    )
    assert "no step in common" in str(
        loss_difference(some, {"loss": series(np.ones(9), first=50)})[2]
    )


def test_scalars_are_read_with_their_steps(tmp_path: Path) -> None:
    """Under the logdir, also where the folder of the record files was given."""
    write_scalars(tmp_path / "tb", "train/loss", np.array([3.0, 2.0, np.nan, 1.0]))
    write_scalars(tmp_path, "accuracy", np.ones(3))
    for folder in (tmp_path, tmp_path / "plugins" / "hooktrace"):
        found = losses(folder)
        assert list(found) == ["train/loss"]
        assert found["train/loss"].steps.tolist() == [0, 1, 3]
    assert losses(tmp_path / "plugins") == {}


def test_training_goes_before_validation() -> None:
    """Where both are there."""
    both = {"eval/loss": series(np.ones(90)), "train/loss": series(np.ones(90))}
    assert loss_difference(both, both)[0] == "train/loss"


def test_hooktraces_own_files_alone_are_not_read(tmp_path: Path, monkeypatch: Any) -> None:
    """Those of many ranks take long, and have no loss."""
    from tensorboard.backend.event_processing import event_accumulator

    from hooktrace.exporters.event_file import EventFile

    read: list[str] = []
    kept = event_accumulator.EventAccumulator
    monkeypatch.setattr(
        event_accumulator, "EventAccumulator",
        lambda folder, **options: read.append(folder) or kept(folder, **options),
    )  # fmt: skip
    tmp_path.joinpath("rank0").mkdir()
    EventFile(tmp_path / "rank0").flush()
    write_scalars(tmp_path, "train/loss", np.ones(3))
    assert list(losses(tmp_path)) == ["train/loss"]
    assert read == [str(tmp_path)]
