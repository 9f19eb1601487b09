"""What ``hooktrace.load`` gives: tables as numpy, pandas, Polars and Arrow, and the summary."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hooktrace
from hooktrace.analysis.run.tables import TABLES
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.runs import call


@pytest.fixture
def run(tmp_path: Path) -> hooktrace.Run:
    write_job(SyntheticJob(ranks=2, steps=3, error=0.02, error_every=3), tmp_path)
    return hooktrace.load(tmp_path)


def test_pandas_has_the_declared_types(run: hooktrace.Run) -> None:
    pytest.importorskip("pandas")
    for name, (columns, _) in TABLES.items():
        frame = getattr(run, name).pandas()
        assert [str(dtype) for dtype in frame.dtypes] == [c.dtype for c in columns]
        assert list(frame.columns) == [c.name for c in columns] == list(getattr(run, name))
    assert run.buckets.pandas()["exception"].isna().all()


@pytest.mark.parametrize("library", ["polars", "arrow"])
def test_others_hold_the_same(run: hooktrace.Run, library: str) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow" if library == "arrow" else library)

    def listed(values: Any) -> list[object]:
        return [None if pd.isna(value) else value for value in values]

    for name, (columns, _) in TABLES.items():
        table = getattr(run, name)
        frame, theirs = table.pandas(), getattr(table, library)()
        for column in columns:
            mine, his = listed(frame[column.name]), theirs[column.name]
            if column.name == "time":
                mine = [value.value for value in frame.time]
                his = his.dt.epoch("ns") if library == "polars" else his.cast("int64")
            his = his.to_list() if library == "polars" else his.to_pylist()
            assert mine == listed(his), column.name


def test_a_column_is_an_array_masked_where_nothing_is_known(run: hooktrace.Run) -> None:
    steps, buckets = run.steps, run.buckets
    assert len(steps) == 2 * 3
    last = np.asarray(steps["step"]) == max(steps["step"])
    assert (steps["period_ns"].mask == last).all()
    assert steps["exposed_ns"].mean() > 0
    assert set(buckets["hook"]) == {run.models["hook"][0]}
    assert buckets["exception"].mask.all()
    assert repr(steps).startswith("<steps: 6 rows, ")
    with pytest.raises(KeyError, match="no column is called 'exposed'; these are: model, hook, "):
        steps["exposed"]


@pytest.mark.parametrize(
    ("method", "library"), [("pandas", "pandas"), ("polars", "polars"), ("arrow", "pyarrow")]
)
def test_what_is_not_installed_is_named(
    run: hooktrace.Run, method: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install; facts and arrays need none."""
    monkeypatch.setitem(sys.modules, library, None)
    assert run.summary()["ranks"] == 2
    with pytest.raises(ModuleNotFoundError, match=f"pip install {library}, or take a column as"):
        getattr(run.steps, method)()


def test_a_run_says_what_it_is_and_what_the_report_says(tmp_path: Path) -> None:
    write_job(SyntheticJob(ranks=3, steps=20, late_ms={1: 9.0}), tmp_path)
    run = hooktrace.load(tmp_path)
    assert repr(run) == "<run synthetic: 3 of 3 ranks, gloo, torch 2.13.0>"
    assert list(run.ranks["rank"]) == [0, 1, 2]
    assert run.summary() == json.loads(call("report", tmp_path, "--json").stdout)
