"""The TensorBoard exporter, read back with TensorBoard itself; of many jobs: ``golden.py``."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from hooktrace.exporters.tensorboard import TensorBoardExporter
from hooktrace.exporters.tensorboard_model import MAX_ANOMALIES
from hooktrace.records import Batch, Transfer, metrics
from tests.exporters import records_sample as sample

GROUP = f"hooktrace.{sample.MODEL}"
EXPOSED = f"{GROUP}/exposed_ms"


def write(logdir: Path, *batches: Batch, **options: int) -> EventAccumulator:
    """Export batches, close, and return what TensorBoard reads of rank 0."""
    exporter = TensorBoardExporter(logdir, **options)
    for batch in batches:
        exporter.export(batch)
    exporter.close()
    return read(logdir / "rank0")


def read(directory: Path) -> EventAccumulator:
    """Return TensorBoard's own reading of a run, nothing down-sampled."""
    return EventAccumulator(str(directory), size_guidance=dict.fromkeys(KINDS, 0)).Reload()


KINDS = ("scalars", "tensors", "histograms")


def texts(events: EventAccumulator, tag: str) -> list[str]:
    return [t.tensor_proto.string_val[0].decode() for t in events.Tensors(tag)]


def test_a_period_stands_at_its_own_step(tmp_path: Path) -> None:
    """The step after the slow one says it; ``scalar_every`` thins the scalars and nothing else."""
    steps = {i: sample.make_step(i) for i in range(1, 7)}
    steps[4] = replace(steps[4][0], previous_period_ns=70_000_000), steps[4][1]
    batch = Batch(run=sample.make_run(), steps=tuple(steps.values()))

    events = write(tmp_path, batch, scalar_every=2)

    periods = events.Scalars(f"{GROUP}/step_period_ms")
    assert [(e.step, e.value) for e in periods] == [(1, 10.0), (3, 70.0), (5, 10.0)]
    assert [e.step for e in events.Scalars(f"{GROUP}/exposed_ms")] == [1, 3, 5]
    assert events.Histograms(f"{GROUP}.more/bucket_ms")[0].histogram_value.num == 12


def test_histograms_come_once_a_window(tmp_path: Path) -> None:
    """Each histogram holds every bucket since the last one, and closing writes the rest."""
    batches = [sample.make_batch(steps=2, first_step=i) for i in range(0, 8, 2)]

    events = write(tmp_path, *batches, histogram_every=3)

    durations = events.Histograms(f"{GROUP}.more/bucket_ms")
    assert [h.step for h in durations] == [2, 5, 7]
    assert [h.histogram_value.num for h in durations] == [6, 6, 4]
    assert {h.histogram_value.max for h in durations} == {2.0}
    wire = events.Histograms(f"{GROUP}.more/stage_wire_ms")[0].histogram_value
    assert (wire.min, wire.max, wire.sum) == (1.0, 1.0, 6.0)
    assert sum(wire.bucket) == 6
    assert 1.0 <= wire.bucket_limit[-1] <= 1.1


def test_bytes_of_an_plain_hook_are_never_thinned(tmp_path: Path) -> None:
    """They are known of few steps."""
    sent = (Transfer(collective="all_reduce", dtype="float32", wire_bytes=500),)
    steps = [sample.plain(sample.make_step(i), sent=sent if i == 4 else None) for i in range(7)]
    batch = replace(sample.make_batch(), steps=tuple(steps))
    events = write(tmp_path, batch, scalar_every=3)
    assert [(e.step, e.value) for e in events.Scalars(f"{GROUP}.more/wire_bytes")] == [(4, 500)]
    assert [(e.step, e.value) for e in events.Scalars(f"{GROUP}.more/compression_ratio")] == [
        (4, 16)
    ]


def test_the_delay_of_a_step_is_its_largest(tmp_path: Path) -> None:
    """Of all its checked buckets; nothing is shown where the clocks are unknown."""
    skews = (
        sample.make_skew(3, arrivals_ns=(2_000_000, 0)),
        sample.make_skew(3, arrivals_ns=(5_000_000, 0)),
        sample.make_skew(3, arrivals_ns=(0, 9_000_000)),
        sample.make_skew(4, uncertainty_ns=None),
        sample.make_skew(5, arrivals_ns=(7_000_000, 0)),
    )
    early = sample.make_batch(steps=3)
    early = replace(early, records=(*early.records, *skews))
    events = write(tmp_path, early, sample.make_batch(steps=4, first_step=3))
    delays = [(e.step, e.value) for e in events.Scalars(f"{GROUP}.more/arrival_delay_ms")]
    assert delays == [(3, 5.0), (5, 7.0)]
    assert [e.step for e in events.Scalars(f"{GROUP}/exposed_ms")] == list(range(7))


def test_each_rank_has_its_run(tmp_path: Path) -> None:
    first = write(tmp_path, sample.make_batch(0), sample.make_batch(0, first_step=2))
    write(tmp_path, sample.make_batch(1, steps=3))
    second = read(tmp_path / "rank1")
    assert [len(events.Scalars(EXPOSED)) for events in (first, second)] == [4, 3]


def test_anomalies_stay_bounded_and_counted(tmp_path: Path) -> None:
    """A thousand anomalies give a few dozen tables; the last has the total and the latest."""
    anomalies = [replace(sample.make_anomaly(i), message=f"m{i}|") for i in range(1000)]
    batches = [Batch(run=sample.make_run(), records=(a,)) for a in anomalies]

    events = write(tmp_path, *batches)

    tables = texts(events, f"{GROUP}/anomalies")
    assert 5 < len(tables) < 40
    assert tables[-1].startswith(f"**1000 anomalies**, the latest {MAX_ANOMALIES} first")
    assert "m999&#124;" in tables[-1]
    assert tables[-1].count("\n") == 3 + MAX_ANOMALIES
    assert events.Scalars(f"{GROUP}.more/anomalies_total")[-1].value == 1000


def test_each_model_has_its_group(tmp_path: Path) -> None:
    """A slash in a model's name does not end the group, and two names never share one."""
    step, buckets = sample.make_step()
    steps = tuple((replace(step, model=m), buckets) for m in ("a/b", "a%2Fb"))
    tags = write(tmp_path, Batch(run=sample.make_run(), steps=steps)).Tags()["scalars"]
    groups = {tag.split("/")[0].removesuffix(".more") for tag in tags}
    assert groups == {"hooktrace.a%2Fb", "hooktrace.a%252Fb"}


def test_each_tag_is_described_once(tmp_path: Path) -> None:
    """With its first value, and not with each."""
    write(tmp_path, sample.make_batch(steps=3))
    found: list[str] = []
    for path in (tmp_path / "rank0").iterdir():
        for event in EventFileLoader(str(path)).Load():
            found += [
                v.metadata.summary_description for v in event.summary.value if v.tag == EXPOSED
            ]
    assert found == [metrics.EXPOSED.help, "", ""]
