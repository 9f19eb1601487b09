"""How many points a long run has in TensorBoard; what they say is in ``golden/``."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.exporters import tensorboard_model
from hooktrace.exporters.tensorboard import TensorBoardExporter
from hooktrace.records import Batch
from tests.exporters import records_sample as sample
from tests.exporters.test_tensorboard import EXPOSED, GROUP, read


def test_a_long_run_is_thinned_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many steps take a certain number more of points and bytes, not twice as many."""
    full = 64
    monkeypatch.setattr(tensorboard_model, "FULL", full)
    step, buckets = sample.checked(sample.make_step(1))
    assert step.counts
    sizes = []
    exporter = TensorBoardExporter(tmp_path, histogram_every=1)
    for number in range(1, 8 * full + 1):
        own = replace(step, step=number)
        exporter.export(Batch(run=sample.make_run(), steps=((own, buckets),)))
        if number in {2 * full, 4 * full, 8 * full}:
            (path,) = (tmp_path / "rank0").iterdir()
            sizes.append(path.stat().st_size)
    exporter.close()
    events = read(tmp_path / "rank0")
    for tag in (EXPOSED, f"{GROUP}.error/error_bucket0"):
        points = [event.step for event in events.Scalars(tag)]
        assert points == [
            *range(1, 2 * full + 1),
            *range(2 * full + 1, 4 * full + 1, 2),
            *range(4 * full + 1, 8 * full + 1, 4),
        ]
    assert len(events.Histograms(f"{GROUP}.more/bucket_ms")) == 4 * full
    assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], rel=0.05)
