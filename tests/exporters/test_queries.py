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
        steps = [sample.on_device(sample.make_step(301)), sample.checked(sample.make_step(302))]
        exporter.export(replace(late, steps=tuple(steps)))
        exporter.close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_duckdb(logdir: Path) -> None:
    """All ranks in one query; a stage is a column."""
    duckdb = pytest.importorskip("duckdb")
    table = duckdb.sql("select bucket, median(ns) / 1e6 as ms, count(*) from (select unnest(calls.bucket) as bucket, unnest(calls.duration_ns) as ns from 'runs/demo/plugins/hooktrace/*.jsonl' where kind = 'buckets') group by bucket order by bucket")  # fmt: skip # noqa: E501
    assert table.fetchall() == [(0, 2.0, 604), (1, 2.0, 604)]
    stages = duckdb.sql("select median(compress_ns) / 1e6, median(queue_ns) / 1e6, median(wire_ns) / 1e6, median(decompress_ns) / 1e6 from (select unnest(calls.compress_ns) as compress_ns, unnest(calls.queue_ns) as queue_ns, unnest(calls.wire_ns) as wire_ns, unnest(calls.decompress_ns) as decompress_ns from 'runs/demo/plugins/hooktrace/*.jsonl' where kind = 'buckets')")  # fmt: skip # noqa: E501
    assert stages.fetchall() == [(0.1, 0.4, 1.0, 0.5)]
    (said,) = duckdb.sql("select p.name, p.shape from (select unnest(b.parameters) as p from (select unnest(buckets) as b from 'runs/demo/plugins/hooktrace/rank00000.jsonl' where kind = 'assignment')) limit 1").fetchall()  # fmt: skip # noqa: E501
    assert said == ("layer0.weight", [30, 30])


def test_polars(logdir: Path) -> None:
    """Lazily, so that only the columns that are asked for get into memory."""
    pl = pytest.importorskip("polars")
    table = pl.scan_ndjson("runs/demo/plugins/hooktrace/*.jsonl").filter(pl.col("kind") == "buckets").select(pl.col("calls").struct.field("bucket", "duration_ns")).explode("bucket", "duration_ns").group_by("bucket").agg((pl.col("duration_ns") / 1e6).median().alias("ms")).sort("bucket").collect()  # fmt: skip # noqa: E501
    assert table.rows() == [(0, 2.0), (1, 2.0)]
    whole = pl.read_ndjson("runs/demo/plugins/hooktrace/rank00000.jsonl", infer_schema_length=None)
    lines = (logdir / "runs/demo/plugins/hooktrace/rank00000.jsonl").read_bytes().splitlines()
    assert whole.height == len(lines)
    assert whole["calls"].struct.field("wire_ns").explode().median() == 1e6


def test_pandas(logdir: Path) -> None:
    """One file at a time."""
    pd = pytest.importorskip("pandas")
    table = pd.json_normalize(pd.read_json("runs/demo/plugins/hooktrace/rank00000.jsonl", lines=True)["calls"].dropna())[["bucket", "duration_ns"]].explode(["bucket", "duration_ns"]).groupby("bucket")["duration_ns"].median()  # fmt: skip # noqa: E501
    assert table.to_dict() == {0: 2e6, 1: 2e6}
