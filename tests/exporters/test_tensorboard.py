"""The TensorBoard exporter, read back with TensorBoard itself; of many jobs: ``golden.py``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html

from hooktrace.exporters import tensorboard_model
from hooktrace.exporters.tensorboard import TensorBoardExporter
from hooktrace.exporters.tensorboard_model import MAX_ANOMALIES
from hooktrace.exporters.tensorboard_tables import assignment_table
from hooktrace.records import Batch, Parameter, Transfer
from hooktrace.records.base import Record
from hooktrace.testing.synthetic_shards import ShardedJob
from tests.exporters import records_sample as sample
from tests.exporters.test_append_file import largest_file

GROUP = f"hooktrace.{sample.MODEL}"
EXPOSED = f"{GROUP}/exposed_ms"
KINDS = ("scalars", "tensors", "histograms")


def write(logdir: Path, *batches: Batch, **options: int) -> EventAccumulator:
    """Export batches, close, and return what TensorBoard reads of rank 0."""
    exporter = TensorBoardExporter(logdir, **options)
    for batch in batches:
        exporter.export(batch)
    exporter.close()
    return read(logdir)


def read(logdir: Path) -> EventAccumulator:
    """Return TensorBoard's own reading of rank 0, nothing down-sampled."""
    rank = str(logdir / "rank0")
    return EventAccumulator(rank, size_guidance=dict.fromkeys(KINDS, 0)).Reload()


def steps_of(events: EventAccumulator, tag: str = EXPOSED) -> list[int]:
    return [event.step for event in events.Scalars(tag)]


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
    assert steps_of(events) == [1, 3, 5]
    assert events.Histograms(f"{GROUP}.more/bucket_ms")[0].histogram_value.num == 12


def test_histograms_come_once_a_window(tmp_path: Path) -> None:
    """Each histogram holds every bucket since the last one, and closing writes the rest."""
    batches = [sample.make_batch(steps=2, first_step=i) for i in range(0, 8, 2)]
    events = write(tmp_path, *batches, histogram_every=3)
    durations = events.Histograms(f"{GROUP}.more/bucket_ms")
    assert [h.step for h in durations] == [2, 5, 7]
    assert [h.histogram_value.num for h in durations] == [6, 6, 4]
    wire = events.Histograms(f"{GROUP}.more/stage_wire_ms")[0].histogram_value
    assert (wire.min, wire.max, wire.sum, sum(wire.bucket)) == (1.0, 1.0, 6.0, 6)
    assert 1.0 <= wire.bucket_limit[-1] <= 1.1


def test_what_few_steps_know_is_never_thinned(tmp_path: Path) -> None:
    """The bytes of a plain hook; of all delays of a step the largest, if the clocks are known."""
    sent = (Transfer(collective="all_reduce", dtype="float32", wire_bytes=500),)
    steps = [sample.plain(sample.make_step(i), sent=sent if i == 4 else None) for i in range(7)]
    arrivals = ((2_000_000, 0), (5_000_000, 0), (0, 9_000_000))
    skews = [sample.make_skew(3, arrivals_ns=two) for two in arrivals]
    skews += [sample.make_skew(4, uncertainty_ns=None), sample.make_skew(5)]
    early = replace(sample.make_batch(), steps=tuple(steps[:3]), records=tuple(skews))
    late = replace(sample.make_batch(), steps=tuple(steps[3:]))
    events = write(tmp_path, early, late, scalar_every=3)
    for name, expected in (
        ("wire_bytes", [(4, 500)]), ("compression_ratio", [(4, 16)]),
        ("arrival_delay_ms", [(3, 5.0), (5, 3.0)]),
    ):  # fmt: skip
        assert [(e.step, e.value) for e in events.Scalars(f"{GROUP}.more/{name}")] == expected


def test_steps_that_are_not_timed_take_no_point_of_others(tmp_path: Path) -> None:
    """Of a plain hook on torch 2.14 each says what it sent, and few are not like it."""
    sent = (Transfer(collective="all_reduce", dtype="float32", wire_bytes=500),)
    of = [sample.plain(sample.make_step(i), sent=None if i % 2 else sent) for i in range(9)]
    steps = [(s, tuple(replace(b, bounded=s.sent is not None) for b in bs)) for s, bs in of]
    events = write(tmp_path, replace(sample.make_batch(), steps=tuple(steps)), scalar_every=4)
    assert steps_of(events) == [1, 5]


def test_anomalies_stay_bounded_and_counted(tmp_path: Path) -> None:
    """A thousand anomalies give a few dozen tables; the last has the total and the latest."""
    anomalies = [replace(sample.make_anomaly(i), message=f"m{i}|") for i in range(1000)]
    events = write(tmp_path, *(Batch(run=sample.make_run(), records=(a,)) for a in anomalies))
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


def test_a_long_run_is_thinned_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many steps take a certain number more of points and bytes, not twice as many."""
    full = 64
    monkeypatch.setattr(tensorboard_model, "FULL", full)
    step, buckets = sample.checked(sample.make_step(1))
    sizes = []
    exporter = TensorBoardExporter(tmp_path, histogram_every=1)
    for number in range(1, 8 * full + 1):
        own = replace(step, step=number)
        exporter.export(Batch(run=sample.make_run(), steps=((own, buckets),)))
        if number in {2 * full, 4 * full, 8 * full}:
            (path,) = (tmp_path / "rank0").iterdir()
            sizes.append(path.stat().st_size)
    exporter.close()
    events = read(tmp_path)
    for tag in (EXPOSED, f"{GROUP}.error/error_bucket0"):
        assert steps_of(events, tag) == [
            *range(1, 2 * full + 1),
            *range(2 * full + 1, 4 * full + 1, 2),
            *range(4 * full + 1, 8 * full + 1, 4),
        ]
    assert len(events.Histograms(f"{GROUP}.more/bucket_ms")) == 4 * full
    assert sizes[2] - sizes[1] == pytest.approx(sizes[1] - sizes[0], rel=0.05)


def test_an_assignment_table_has_a_row_for_each_bucket_and_cuts_long_lists() -> None:
    """Names do not become markup; of a sharded model it says collectives."""
    layout = sample.make_layout()
    wide = replace(
        layout.buckets[0], parameters=(Parameter("w|<b>_x_", (2, 3)), *[Parameter("p", ())] * 60)
    )
    lines = assignment_table(replace(layout, buckets=(wide,) * 201)).splitlines()
    assert lines[0].startswith("**Rebuild 1**: 201 buckets, 804000 bytes of gradients")
    assert lines[4].startswith(
        "0 | float32 | cpu | 1000 | 4000 | 61 | w&#124;&#60;b&#62;&#95;x&#95; (2x3), p (scalar)"
    )
    assert lines[4].endswith("and 21 more")
    assert (len(lines), lines[-1]) == (4 + 200 + 2, "1 more buckets are not shown.")
    html = markdown_to_safe_html("\n".join(lines))
    assert (html.count("<table>"), html.count("<tr>")) == (1, 1 + 200)
    sharded = ShardedJob(units=("<root>",)).layout()
    many = assignment_table(replace(sharded, buckets=sharded.buckets[:1] * 201))
    assert many.endswith("\n\n1 more collectives are not shown.")


def test_a_restarted_run_overtakes_the_earlier_one(tmp_path: Path) -> None:
    """Steps that a later run in the same directory makes again are shown once."""
    write(tmp_path, sample.make_batch(steps=5))
    restarted = replace(sample.make_batch(first_step=3, steps=3), records=())
    assert steps_of(write(tmp_path, restarted)) == [0, 1, 2, 3, 4, 5]


NOTICE = replace(sample.make_anomaly(kind="fails_on_gloo"), bucket=-1)
"""About a hook that no model has called yet, so that its step says nothing of the run's."""


@pytest.mark.parametrize(("record", "first_step"), [(sample.make_clock(), 20), (NOTICE, 0)])
def test_a_run_that_begins_without_a_step_erases_nothing(
    tmp_path: Path, record: Record, first_step: int
) -> None:
    """Its first step is told by the batch that has one; until then nothing is overtaken."""
    write(tmp_path, sample.make_batch(steps=20))
    first = replace(sample.make_batch(), steps=(), records=(record,), losses={})
    later = replace(sample.make_batch(first_step=first_step, steps=20), records=())
    events = write(tmp_path, first, later)
    assert steps_of(events) == list(range(first_step + 20))
    if record is NOTICE:
        assert texts(events, f"{GROUP}/anomalies")[-1].startswith("**1 anomalies**")


def test_a_full_disk_and_a_deleted_directory_raise_from_export(tmp_path: Path) -> None:
    """The error comes out of export with its fix, the file stays readable, closing is quiet."""
    exporter = TensorBoardExporter(tmp_path)
    exporter.export(sample.make_batch())
    with (
        largest_file(2000),
        pytest.raises(OSError, match=r"File too large; raise the process's file size limit"),
    ):
        exporter.export(sample.make_batch(first_step=2, steps=20))
    exporter.close()
    assert steps_of(read(tmp_path)) == [0, 1]
    exporter.export(sample.make_batch())
    shutil.rmtree(tmp_path)
    with pytest.raises(FileNotFoundError, match="was deleted while it was being written"):
        exporter.export(sample.make_batch(first_step=2))
    exporter.close()


def test_neither_torch_nor_tensorflow_is_imported() -> None:
    code = (
        "import sys, hooktrace.exporters.event_file\n"
        "assert not {'torch', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
