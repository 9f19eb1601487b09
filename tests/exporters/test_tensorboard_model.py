"""What TensorBoard gets of a sharded model, read back by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.exporters import tensorboard_model
from hooktrace.exporters.tensorboard import TensorBoardExporter
from hooktrace.exporters.tensorboard_tags import meaning_of
from hooktrace.records import Batch, ErrorRecord
from hooktrace.testing.synthetic_shards import ShardedJob, sharded_steps
from tests.exporters import records_sample as sample
from tests.exporters.records_sample import sharded_batch
from tests.exporters.test_tensorboard import EXPOSED, read, write
from tests.exporters.test_tensorboard import GROUP as SAMPLE

GROUP = "hooktrace.sharded"


def test_a_sharded_step_has_exposed_time_by_kind(tmp_path: Path) -> None:
    """The kinds add up to the step's; errors are a unit's, and every tag has a meaning."""
    job, batch = ShardedJob(units=("<root>", "block")), sharded_batch()
    events = write(tmp_path, batch)
    values = {t: [e.value for e in events.Scalars(t)] for t in events.Tags()["scalars"]}
    kinds = {t: v for t, v in values.items() if t.startswith(f"{GROUP}.more/exposed_")}
    assert kinds == {
        f"{GROUP}.more/exposed_all_gather_forward_ms": [2 * job.gather_ms] * 2,
        f"{GROUP}.more/exposed_all_gather_backward_ms": [job.gather_ms] * 2,
        f"{GROUP}.more/exposed_reduce_scatter_ms": [2 * job.scatter_ms] * 2,
    }
    assert values[f"{GROUP}/exposed_ms"] == pytest.approx([sum(v[0] for v in kinds.values())] * 2)
    assert values[f"{GROUP}/overlap_ratio"] == [0.0, 0.0]
    assert values[f"{GROUP}.more/payload_bytes"] == [s.gradient_bytes for s, _ in batch.steps]
    assert values[f"{GROUP}.error/error_unit.<root>.reduce_scatter"] == [0.25]
    assert not [tag for tag in values if "bucket" in tag or "gradient" in tag]
    assert [tag for tag in values if not meaning_of(tag)] == []
    assert f"{GROUP}.more/unit_ms" in events.Tags()["histograms"] + events.Tags()["tensors"]


def test_a_long_run_is_thinned_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many steps take a certain number more of points and bytes, not twice as many."""
    full = 64
    monkeypatch.setattr(tensorboard_model, "FULL", full)
    step, buckets = sample.probed(sample.make_step(1))
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
    for tag in (EXPOSED, f"{SAMPLE}.error/error_bucket0"):
        points = [event.step for event in events.Scalars(tag)]
        assert points == [
            *range(1, 2 * full + 1),
            *range(2 * full + 1, 4 * full + 1, 2),
            *range(4 * full + 1, 8 * full + 1, 4),
        ]
    assert len(events.Histograms(f"{SAMPLE}.more/bucket_ms")) == 4 * full
    assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], rel=0.05)


def test_of_micro_steps_the_worst_error_is_shown(tmp_path: Path) -> None:
    """One value a step: TensorBoard takes a second one for another run's."""
    job = ShardedJob(steps=1, micro_steps=2, units=("<root>",))
    step, calls = next(sharded_steps(job))[0]
    errors = [ErrorRecord(relative_l2=e, cosine=1 - e, max_absolute=0.0, flipped_share=0.0,
                          reference_l2=1.0) for e in (0.5, 0.25, 0.125)]  # fmt: skip
    probed = tuple(replace(c, error=e) for c, e in zip(calls, errors, strict=True))
    events = write(tmp_path, Batch(run=job.run(0), steps=((step, probed),)))
    group = f"{GROUP}.error"
    found = {t: [e.value for e in events.Scalars(t)] for t in events.Tags()["scalars"]
             if t.startswith(group)}  # fmt: skip
    assert found == {
        f"{group}/error_unit.<root>.all_gather_forward": [0.5],
        f"{group}/error_unit.<root>.reduce_scatter": [0.125],
    }


def test_a_kind_of_which_one_wait_is_not_known_has_no_exposed_time(tmp_path: Path) -> None:
    """A sum without it would be too small."""
    (step, (first, *others)), *_ = sharded_batch().steps
    unknown = replace(step, exposed_ns=None), (replace(first, exposed_ns=None), *others)
    events = write(tmp_path, Batch(run=sharded_batch().run, steps=(unknown,)))
    tags = events.Tags()["scalars"]
    assert f"{GROUP}.more/exposed_all_gather_forward_ms" not in tags
    assert f"{GROUP}.more/exposed_reduce_scatter_ms" in tags
    assert f"{GROUP}/exposed_ms" not in tags
