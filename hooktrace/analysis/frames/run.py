"""A run in hand: what ``hooktrace.load`` returns.

logdir --read_run--> Timeline --> Run: frames, report and picture, each made when first asked for
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...records.errors import UsageError
from ..report import RunReport, build_report
from ..report.run_files import read_run
from ..report.run_report import report_json
from ..timeline import Timeline
from .columns import BUCKETS, STAGES, STEPS, WALL, Column
from .picture import StepPicture, picture_of
from .tables import Table, Values, buckets_table, stages_table, steps_table


class Run:
    """A run's record files, read.

    ``steps``, ``buckets``, ``stages``: data frames, a row for each on each rank, with the columns
    that docs/data-frames.md lists: ns and bytes, times in rank 0's clock, NA for what is not known.
    A change to a frame stays in it.  Frames hold all rows; ``steps.counts`` says which of them the
    report's statistics are made of.
    """

    def __init__(self, timeline: Timeline, path: str, engine: str) -> None:
        self._timeline, self._path, self._engine = timeline, path, engine

    def __repr__(self) -> str:
        return f"<{self.report.headline}>"

    @cached_property
    def steps(self) -> Any:
        """A row for each step on each rank."""
        return frame(steps_table(self._timeline), STEPS, self._engine)

    @cached_property
    def buckets(self) -> Any:
        """A row for each bucket of each step on each rank."""
        return frame(buckets_table(self._timeline), BUCKETS, self._engine)

    @cached_property
    def stages(self) -> Any:
        """A row for each stage of each bucket of each step on each rank."""
        return frame(stages_table(self._timeline), STAGES, self._engine)

    @property
    def ranks(self) -> list[int]:
        """The ranks that have a file here, ascending."""
        return [track.rank for track in self._timeline.tracks]

    @property
    def models(self) -> list[str]:
        """The names of all models, in order of appearance."""
        return self._timeline.models

    @cached_property
    def report(self) -> RunReport:
        """What ``hooktrace report`` says: facts and findings, by model."""
        return build_report(self._timeline, path=self._path)

    def summary(self) -> dict[str, Any]:
        """Return the same as plain dicts, lists and numbers: ``hooktrace report --json``."""
        found: dict[str, Any] = json.loads(report_json(self.report))
        return found

    def timeline(self, step: int | None = None, *, model: str | None = None) -> StepPicture:
        """Return one step on all ranks, to scale: a picture in a notebook, also in a saved one.

        ``step``: its number; of ``None`` a typical one.  ``model``: the first one, unless named.
        Raises ``UsageError`` where there is no such model or step, or its times do not count.
        """
        return picture_of(self._timeline, self.report, step, model)


def load(run: str | os.PathLike[str], *, engine: str = "pandas", processes: int = 1) -> Run:
    """Read the record files of a run into data frames; no torch.

    ``run``: what was given to ``RecordFileExporter``, or the folder of the files, or the URL of one
    that fsspec opens, as ``s3://...``, whose record files are copied.  ``engine``: of
    which library the frames are, ``"pandas"`` or ``"polars"``; it is imported when a frame is asked
    for.  ``processes``: how many read, of a large run; a script that asks for more than one needs
    ``if __name__ == "__main__":``, as ``multiprocessing`` imports it again in each.

    Raises ``UsageError`` (a line that ends in what to do) where there is nothing to read.
    """
    if engine not in ENGINES:
        raise UsageError(f"there is no engine {engine!r}; pass one of {', '.join(ENGINES)}")
    return Run(read_run(run, processes=processes), os.fspath(run), engine)


def frame(table: Table, columns: Sequence[Column], engine: str) -> Any:
    """Return the columns as a data frame of ``engine``, one of ``ENGINES``.

    Raises ``ModuleNotFoundError`` where it is not installed.
    """
    try:
        library = importlib.import_module(engine)
    except ModuleNotFoundError as error:
        if error.name != engine:
            raise
        other = next(name for name in ENGINES if name != engine)
        raise ModuleNotFoundError(
            f"{engine}, of which these frames are, is not installed here; pip install {engine}, "
            f"or pass hooktrace.load(..., engine={other!r})",
            name=engine,
        ) from None
    made = {c.name: ENGINES[engine](library, table[c.name], c.dtype) for c in columns}
    return library.DataFrame(made)


def _pandas(pd: Any, values: Values, dtype: str) -> Any:
    if values.names is not None:
        return pd.Categorical.from_codes(values.data, categories=list(values.names))
    if dtype == WALL:
        at = values.data.astype("datetime64[ns]")
        at[~_mask(values)] = np.datetime64("NaT")
        return pd.DatetimeIndex(at).tz_localize("UTC")
    if dtype == "Int64":
        return pd.arrays.IntegerArray(values.data.astype(np.int64), ~_mask(values))
    return pd.array(values.data, dtype=dtype)


def _polars(pl: Any, values: Values, dtype: str) -> Any:
    if values.names is not None:
        names = np.array(values.names, object)[values.data].tolist()
        return pl.Series(names, dtype=pl.Enum(values.names))
    if dtype == "string":
        return pl.Series(values.data.tolist(), dtype=pl.String)
    if dtype == "float64":
        return pl.Series(values.data)
    made = pl.Series(values.data)
    if values.known is not None:
        rows = np.flatnonzero(~values.known)
        made = made.scatter(rows, None) if len(rows) else made
    return made.cast(pl.Datetime("ns")).dt.replace_time_zone("UTC") if dtype == WALL else made


def _mask(values: Values) -> Any:
    return np.ones(len(values.data), np.bool_) if values.known is None else values.known


ENGINES: dict[str, Callable[[Any, Values, str], Any]] = {"pandas": _pandas, "polars": _polars}
"""What makes a column, by the name of the library."""
