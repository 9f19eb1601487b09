"""A TensorBoard event file on a disk that is full or gone, and after a restart."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.exporters.tensorboard import TensorBoardExporter
from hooktrace.records.base import Record
from tests.exporters import records_sample as sample
from tests.exporters.test_append_file import largest_file
from tests.exporters.test_tensorboard import GROUP, read, texts, write


def test_a_restarted_run_overtakes_the_earlier_one(tmp_path: Path) -> None:
    """Steps that a later run in the same directory makes again are shown once."""
    write(tmp_path, sample.make_batch(steps=5))
    restarted = replace(sample.make_batch(first_step=3, steps=3), records=())
    events = write(tmp_path, restarted)
    assert [e.step for e in events.Scalars(f"{GROUP}/exposed_ms")] == [0, 1, 2, 3, 4, 5]


NOTICE = replace(sample.make_anomaly(kind="fails_on_gloo"), bucket=-1)
"""About a hook that no model has called yet, so that its step says nothing of the run's."""


@pytest.mark.parametrize(
    ("record", "first_step"),
    [
        (sample.make_clock(), 20),
        (replace(sample.make_hang(-1), bucket=-1), 20),
        (NOTICE, 20),
        (NOTICE, 0),
    ],
)
def test_a_run_that_begins_without_a_step_erases_nothing(
    tmp_path: Path, record: Record, first_step: int
) -> None:
    """Its first step is told by the batch that has one; until then nothing is overtaken."""
    write(tmp_path, sample.make_batch(steps=20))
    first = replace(sample.make_batch(), steps=(), records=(record,), losses={})
    later = replace(sample.make_batch(first_step=first_step, steps=20), records=())
    events = write(tmp_path, first, later)
    steps = [e.step for e in events.Scalars(f"{GROUP}/exposed_ms")]
    assert steps == list(range(first_step + 20))
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
    assert [e.step for e in read(tmp_path / "rank0").Scalars(f"{GROUP}/exposed_ms")] == [0, 1]

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
