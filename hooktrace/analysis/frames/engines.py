"""A table as a data frame of pandas or Polars, whichever is asked for and installed.

Table, its columns --frame--> pandas.DataFrame | polars.DataFrame
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .columns import WALL, Column
from .tables import Table, Values


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
