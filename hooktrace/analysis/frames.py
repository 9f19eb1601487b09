"""A run in hand, what ``hooktrace.load`` returns, and its tables.

    logdir --read_run--> all ranks --> Run: tables and report, made when first asked for
    masked arrays of numpy, by column --Table--> table["wire_ns"], .pandas(), .polars(), .arrow()

The libraries are imported when they are asked for; hooktrace installs none of them.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from .report import RunReport, build_report
from .report.view import report_json
from .run import Run as ReadRun
from .run.files import read_run
from .run.rows import Column, Values, made
from .run.tables import TABLES, WALL


class Run:
    """A run's record files, read; ``load`` makes it.

    Its tables hold all rows, in ns and bytes, times in rank 0's clock, and mask what is not known;
    docs/data-frames.md lists their columns.  ``steps["counts"]`` says which of them the report's
    statistics are made of.
    """

    def __init__(self, run: ReadRun, path: str) -> None:
        self._run, self._path = run, path

    def __repr__(self) -> str:
        return f"<{self.report.headline}>"

    @cached_property
    def steps(self) -> Table:
        """A row for each step on each rank."""
        return self._table("steps")

    @cached_property
    def buckets(self) -> Table:
        """A row for each bucket of each step on each rank."""
        return self._table("buckets")

    @cached_property
    def stages(self) -> Table:
        """A row for each stage of each bucket of each step on each rank."""
        return self._table("stages")

    @cached_property
    def waits(self) -> Table:
        """A row for each collective on each rank: its wire time, split into wait and transfer."""
        return self._table("waits")

    @cached_property
    def ranks(self) -> Table:
        """A row for each rank that has a file, ascending."""
        return self._table("ranks")

    @cached_property
    def models(self) -> Table:
        """A row for each model and hook, in order of appearance."""
        return self._table("models")

    def _table(self, name: str) -> Table:
        columns, rows = TABLES[name]
        return Table(name, columns, made(rows(self._run), columns))

    @cached_property
    def report(self) -> RunReport:
        """What ``hooktrace report`` says: facts and findings, by model."""
        return build_report(self._run, path=self._path)

    def summary(self) -> dict[str, Any]:
        """Return the same as plain dicts, lists and numbers: ``hooktrace report --json``."""
        found: dict[str, Any] = json.loads(report_json(self.report))
        return found


def load(run: str | os.PathLike[str], *, processes: int = 1) -> Run:
    """Read the record files of a run; no torch.

    ``run``: what was given to ``RecordFileExporter``, or the folder of the files.  ``processes``:
    how many read, of a large run; a script that asks for more than one needs
    ``if __name__ == "__main__":``, as ``multiprocessing`` imports it again in each.

    Raises ``UsageError`` (a line that ends in what to do) where there is nothing to read.
    """
    return Run(read_run(run, processes=processes), os.fspath(run))


class Table:
    """Some columns of one length; made when a ``Run`` is first asked for it.

    ``columns``: which, of what type, and what each holds.  ``table[name]`` is a column as a numpy
    array, masked where a value is not known; names and texts are objects.
    """

    def __init__(self, name: str, columns: Sequence[Column], values: Mapping[str, Values]) -> None:
        self._name = name
        self.columns = tuple(columns)
        self._values = {column.name: values[column.name] for column in columns}

    def __len__(self) -> int:
        return len(next(iter(self._values.values())))

    def __iter__(self) -> Iterator[str]:
        """Yield the columns' names."""
        return iter(self._values)

    def __repr__(self) -> str:
        return (
            f"<{self._name}: {len(self):,} rows, {len(self.columns)} columns; .pandas(), .polars() "
            "or .arrow() makes a data frame of it>"
        )

    def __getitem__(self, name: str) -> Values:
        """Return a column; raises ``KeyError`` for a name that is none."""
        if name not in self._values:
            raise KeyError(f"no column is called {name!r}; these are: {', '.join(self._values)}")
        values = self._values[name]
        return np.ma.MaskedArray(values.data, np.ma.getmaskarray(values))

    def pandas(self) -> Any:
        """Return a ``pandas.DataFrame``; raises ``ModuleNotFoundError`` where that is missing."""
        pd = _library("pandas")
        return pd.DataFrame({c.name: _pandas(pd, self._values[c.name], c) for c in self.columns})

    def polars(self) -> Any:
        """Return a ``polars.DataFrame``; raises ``ModuleNotFoundError`` where that is missing."""
        pl = _library("polars")
        return pl.DataFrame({c.name: _polars(pl, self._values[c.name], c) for c in self.columns})

    def arrow(self) -> Any:
        """Return a ``pyarrow.Table``; raises ``ModuleNotFoundError`` where that is missing."""
        pa = _library("pyarrow")
        return pa.table({c.name: _arrow(pa, self._values[c.name], c) for c in self.columns})


def _library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ModuleNotFoundError(
            f"{name} is not installed here; pip install {name}, or take a column as an array of "
            'numpy, as run.steps["exposed_ns"]',
            name=name,
        ) from None


def _categories(texts: Values) -> list[str]:
    """Return the texts that are known, in the order in which they first come, each once."""
    return [*dict.fromkeys(texts.compressed())]


def _pandas(pd: Any, values: Values, column: Column) -> Any:
    unknown = np.ma.getmaskarray(values)
    if column.dtype == "category":
        return pd.Categorical(values.tolist(), categories=_categories(values))
    if column.dtype == "string":
        return pd.array(values.tolist(), dtype="string")
    if column.dtype == WALL:
        at = values.data.astype("datetime64[ns]")
        at[unknown] = np.datetime64("NaT")
        return pd.DatetimeIndex(at).tz_localize("UTC")
    if column.dtype == "Int64":
        return pd.arrays.IntegerArray(values.data.astype(np.int64), unknown)
    return pd.array(values.data, dtype=column.dtype)


def _polars(pl: Any, values: Values, column: Column) -> Any:
    if column.dtype in ("category", "string"):
        names = pl.Enum(_categories(values)) if column.dtype == "category" else pl.String
        return pl.Series(values.tolist(), dtype=names)
    made = pl.Series(values.data)
    rows = np.flatnonzero(np.ma.getmaskarray(values))
    if len(rows):
        made = made.scatter(rows, None)
    is_time = column.dtype == WALL
    return made.cast(pl.Datetime("ns")).dt.replace_time_zone("UTC") if is_time else made


def _arrow(pa: Any, values: Values, column: Column) -> Any:
    if column.dtype in ("category", "string"):
        texts = pa.array(values.tolist(), pa.string())
        return texts.dictionary_encode() if column.dtype == "category" else texts
    kind = pa.timestamp("ns", tz="UTC") if column.dtype == WALL else None
    return pa.array(values.data, kind, mask=np.ma.getmaskarray(values))
