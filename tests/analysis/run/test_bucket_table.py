"""The one list of bucket columns: what it declares is in data frames and report alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hooktrace.analysis.frames import load
from hooktrace.analysis.frames.columns import TABLES
from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.run_report import report_json
from hooktrace.analysis.report.tables import bucket_table
from hooktrace.analysis.run.bucket_table import BUCKETS, SHOWN
from hooktrace.analysis.run.tables import Column, Shown, sometimes
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_shards import ShardedJob
from tests.analysis.runs import job_run

_CALL = Column("call_ns", "Int64", "how long the hook's call took", sometimes("launched_after"))
_IN_UNITS = {"gradients": "payload"}
"""What the report's table of units says instead of a heading."""


@pytest.fixture(autouse=True)
def invented(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A column that no view knows of by name; its fact is one that the report has already."""
    how = Shown("ready_ns", None, "call", "call: the hook's own")
    monkeypatch.setitem(TABLES, "buckets", ((*BUCKETS, _CALL), TABLES["buckets"][1]))
    SHOWN.append((_CALL, how))
    yield
    SHOWN.pop()


@pytest.mark.parametrize(
    "job",
    [
        SyntheticJob(ranks=2, steps=9, late_ms={1: 5.0}, error=0.1, error_every=2),
        ShardedJob(steps=9),
    ],
    ids=["buckets", "units"],
)
def test_each_declared_column_is_in_all_views(
    job: SyntheticJob | ShardedJob, tmp_path: Path
) -> None:
    """``exposed`` in those of units, which alone have it."""
    report = build_report(job_run(job, tmp_path))
    headings = {column.name for column in bucket_table(report.models[0].facts).columns}
    facts = json.loads(report_json(report))["models"][0]["facts"]["buckets"][0]
    frames, is_sharded = load(tmp_path).buckets, isinstance(job, ShardedJob)
    for column, how in SHOWN:
        assert column.name in frames, column
        assert how.fact in facts, column
        heading = _IN_UNITS.get(how.heading, how.heading) if is_sharded else how.heading
        assert heading in headings | {""} or (heading == "exposed" and not is_sharded), column
