"""The same table in pandas and in Polars: types as declared, NA where nobody knows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import hooktrace
from hooktrace.analysis.frames.columns import FRAMES
from hooktrace.testing.synthetic import SyntheticJob, write_job


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    write_job(SyntheticJob(ranks=2, steps=3, error=0.02, error_every=3), tmp_path)
    return tmp_path


def test_pandas_has_the_declared_types(logdir: Path) -> None:
    pytest.importorskip("pandas")
    run = hooktrace.load(logdir)
    for name, columns in FRAMES.items():
        frame = getattr(run, name)
        assert [str(dtype) for dtype in frame.dtypes] == [c.dtype for c in columns]
        assert list(frame.columns) == [c.name for c in columns]


def test_polars_holds_the_same(logdir: Path) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    one, other = hooktrace.load(logdir), hooktrace.load(logdir, engine="polars")
    for name, columns in FRAMES.items():
        frame, theirs = getattr(one, name), getattr(other, name)
        assert isinstance(frame, pd.DataFrame)
        assert isinstance(theirs, pl.DataFrame)
        for column in columns:
            mine = [None if pd.isna(value) else value for value in frame[column.name]]
            his = [None if value != value else value for value in theirs[column.name]]  # noqa: PLR0124
            if column.name == "time":
                mine = [value.value for value in frame.time]
                his = theirs["time"].dt.epoch("ns").to_list()
            assert mine == his, column.name


@pytest.mark.parametrize(("engine", "other"), [("pandas", "polars"), ("polars", "pandas")])
def test_what_is_not_installed_is_named(
    logdir: Path, engine: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to install, or to pass; facts and picture need neither."""
    monkeypatch.setitem(sys.modules, engine, None)
    run = hooktrace.load(logdir, engine=engine)
    assert run.summary()["ranks"] == 2
    assert run.timeline().svg
    with pytest.raises(ModuleNotFoundError, match=f"pip install {engine}, or .*engine='{other}'"):
        _ = run.steps
