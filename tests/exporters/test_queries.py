"""DuckDB, Polars and pandas read record files as they are; docs show these very lines.

None of the three is needed by hooktrace; what is not installed is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.exporters import RecordFileExporter
from tests.exporters import records_sample as sample


@pytest.fixture
def logdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a logdir of two ranks, whose rare kinds of records come late; it is ``runs/demo``."""
    for rank in range(2):
        exporter = RecordFileExporter(tmp_path / "runs" / "demo")
        exporter.export(sample.make_batch(rank, steps=300))
        late = sample.full_batch(rank)
        steps = [sample.on_device(sample.make_step(301)), sample.probed(sample.make_step(302))]
        exporter.export(replace(late, steps=tuple(steps)))
        exporter.close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_duckdb(logdir: Path) -> None:
    """All ranks in one query; a stage is an array."""
    duckdb = pytest.importorskip("duckdb")
    table = duckdb.sql("select bucket, median(duration_ns) / 1e6 as ms, count(*) from 'runs/demo/plugins/hooktrace/*.jsonl' where kind = 'bucket' group by bucket order by bucket")  # fmt: skip # noqa: E501
    assert table.fetchall() == [(0, 2.0, 604), (1, 2.0, 604)]
    stages = duckdb.sql("select s->>0 as stage, median((s->>2)::bigint - (s->>1)::bigint) / 1e6 as ms from (select unnest(stages) as s from 'runs/demo/plugins/hooktrace/*.jsonl' where kind = 'bucket') group by stage order by ms")  # fmt: skip # noqa: E501
    assert stages.fetchall() == [
        ("compress", 0.1), ("queue", 0.4), ("decompress", 0.5), ("wire", 1.0),
    ]  # fmt: skip


def test_polars(logdir: Path) -> None:
    """Lazily, so that only the columns that are asked for get into memory."""
    pl = pytest.importorskip("polars")
    table = pl.scan_ndjson("runs/demo/plugins/hooktrace/*.jsonl").filter(pl.col("kind") == "bucket").group_by("bucket").agg((pl.col("duration_ns") / 1e6).median().alias("ms")).sort("bucket").collect()  # fmt: skip # noqa: E501
    assert table.rows() == [(0, 2.0), (1, 2.0)]


def test_pandas(logdir: Path) -> None:
    """One file at a time."""
    pd = pytest.importorskip("pandas")
    table = pd.read_json("runs/demo/plugins/hooktrace/rank00000.jsonl", lines=True).query("kind == 'bucket'").eval("ms = duration_ns / 1e6").groupby("bucket").ms.median()  # fmt: skip # noqa: E501
    assert table.to_dict() == {0: 2.0, 1: 2.0}
