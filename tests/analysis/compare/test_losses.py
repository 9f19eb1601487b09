"""Losses beside the record files: which tags, which steps, and why there is none to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hooktrace.analysis.compare.losses import Series, is_loss, loss_difference, losses


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
    tag, found, _ = loss_difference(a, b)
    assert tag == "train/loss"
    assert found is not None
    assert found.differs
    assert found.difference == pytest.approx(noise.mean())
    assert found.b == pytest.approx((found.a or 0.0) + noise.mean())
    assert found.share == pytest.approx(noise.mean() / falling[100:].mean())


SOME = {"loss": series(np.ones(9))}


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ({}, {}, "no TensorBoard scalar like loss lies beside the record files"),
        (SOME, {}, "the runs have no tag in common: loss; none"),
        (SOME, {"a/loss": series(np.ones(9))}, "the runs have no tag in common: loss; a/loss"),
        (SOME, {"loss": series(np.ones(9), 50)}, "the runs have no step in common that has loss"),
    ],
)
def test_why_there_is_none(a: dict[str, Series], b: dict[str, Series], why: str) -> None:
    assert loss_difference(a, b)[1:] == (None, why)


def test_training_goes_before_validation() -> None:
    """Where both are there."""
    both = {"eval/loss": series(np.ones(90)), "train/loss": series(np.ones(90))}
    assert loss_difference(both, both)[0] == "train/loss"


def test_scalars_are_read_with_their_steps(tmp_path: Path, monkeypatch: Any) -> None:
    """Under the logdir, also where the folder of the record files was given.

    Not from hooktrace's own files alone: those of many ranks take long, and have no loss.
    """
    from tensorboard.backend.event_processing import event_accumulator

    from hooktrace.exporters.event_file import EventFile

    read: list[str] = []
    kept = event_accumulator.EventAccumulator
    monkeypatch.setattr(
        event_accumulator, "EventAccumulator",
        lambda folder, **options: read.append(folder) or kept(folder, **options),
    )  # fmt: skip
    write_scalars(tmp_path / "tb", "train/loss", np.array([3.0, 2.0, np.nan, 1.0]))
    write_scalars(tmp_path, "accuracy", np.ones(3))
    tmp_path.joinpath("rank0").mkdir()
    EventFile(tmp_path / "rank0").flush()
    for folder in (tmp_path, tmp_path / "plugins" / "hooktrace"):
        found = losses(folder)
        assert list(found) == ["train/loss"]
        assert found["train/loss"].steps.tolist() == [0, 1, 3]
    assert losses(tmp_path / "plugins") == {}
    assert set(read) == {str(tmp_path), str(tmp_path / "tb")}
