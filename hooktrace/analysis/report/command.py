"""What the subcommand does: read a run, print and write; what cannot be is a ``UsageError``."""

from __future__ import annotations

import os
from pathlib import Path

from ...records.errors import UsageError
from ..document.output import check_writable, put_out
from ..run.files import LOCAL, read_run
from .run_report import build_report, report_json
from .view import document


def run_report(
    path: str | os.PathLike[str],
    *,
    html: Path | None = None,
    model: str | None = None,
    as_json: bool = False,
    on: str = LOCAL,
    every: int = 1,
) -> None:
    """Print the report of a run, and write it as one HTML file; raises ``UsageError``.

    ``as_json``: print it for programs, and nothing else.  ``on``, ``every``: as ``run.load``.
    """
    if html is not None:
        check_writable(html)
    run = read_run(path, on=on, every=every)
    if model is not None and model not in run.model_names:
        raise UsageError(
            f"no model is called {model!r}; pass --model one of {', '.join(run.model_names)}"
        )
    report = build_report(run, model=model, path=str(path))
    text = report_json(report) if as_json else None
    put_out("hooktrace report", document(report), text, html)
