"""A run in hand: what ``hooktrace.load`` returns.

logdir --read_run--> all ranks --> Run: tables and report, made when first asked for
"""

from __future__ import annotations

import json
import os
from functools import cached_property
from typing import Any

from ..report import RunReport, build_report
from ..report.run_report import report_json
from ..run import Run as ReadRun
from ..run.files import read_run
from ..run.tables import made
from .columns import TABLES
from .table import Table


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
