"""Models that keep being made: series, attributes and tags stay bounded."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hooktrace.exporters import TensorBoardExporter
from hooktrace.exporters.aggregates import Aggregates
from hooktrace.exporters.observations import Observer
from hooktrace.records import Batch, Unit
from hooktrace.records.metrics import COMPRESSION_RATIO, EXPOSED, MAX_MODELS, MAX_UNITS, STEPS
from tests.exporters.records_sample import make_layout, make_run, make_step

MORE = 10


def batches() -> list[Batch]:
    """Return a step of each of more models than are told apart, of a hook of their own."""
    found = []
    for n in range(MAX_MODELS + MORE):
        names = {"model": f"model0#{n}", "hook": f"hook{n}"}
        step, buckets = make_step(5)
        own = replace(step, **names), tuple(replace(b, **names) for b in buckets)
        layout = replace(make_layout(), **names)
        found.append(Batch(run=make_run(), steps=(own,), records=(layout,)))
    return found


def test_series_and_tags_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Later models add up as ``other``, without gauges, and that is said; no tags."""
    observer, aggregates = Observer("prometheus"), Aggregates()
    board = TensorBoardExporter(tmp_path)
    for batch in batches():
        aggregates.add(observer.observe(batch))
        board.export(batch)
    board.close()
    other = ("other", "other")
    assert len(aggregates.family(STEPS).series) == MAX_MODELS + 1
    assert aggregates.family(STEPS).series[other] == MORE
    assert sum(aggregates.family(EXPOSED).series[other].counts) == MORE
    assert len(aggregates.family(COMPRESSION_RATIO).series) == MAX_MODELS
    assert other not in aggregates.family(COMPRESSION_RATIO).series
    assert [message.split(" exporter tells 64 models apart")[0] for message in caplog.messages] == [
        "the prometheus", "the tensorboard"
    ]  # fmt: skip
    tags = EventAccumulator(str(tmp_path / "rank0")).Reload().Tags()["scalars"]
    assert len({tag.partition("/")[0] for tag in tags if ".more/" not in tag}) == MAX_MODELS


def test_labels_are_bounded_by_units() -> None:
    """Of all models; micro-steps make no series of their own; later units share one."""
    observer, model = Observer("prometheus"), ("net", "hook")
    _, (bucket, *_) = make_step(5)

    def labels_of(model: tuple[str, str], i: int, turn: int = 0) -> tuple[str, ...]:
        unit = Unit(name=f"layers.{i}", collective="all_gather", phase="forward", repeat=turn)
        return observer._labels_of(replace(bucket, unit=unit), model)

    found = {labels_of(model, i, turn) for i in range(MAX_UNITS + 5) for turn in range(3)}
    assert len(found) == MAX_UNITS + 1
    assert (*model, "other", "all_gather", "forward") in found
    assert labels_of(model, 0)[2] == "layers.0"
    assert labels_of(("one more", "hook"), 0)[2] == "other"
