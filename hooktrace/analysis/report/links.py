"""Links from findings to the steps that they speak of, in TensorBoard's tab Comm Timeline.

The page is a file and knows of no TensorBoard: whoever makes it names one.  A link has the run's
folder, of which the tab knows the end, and its ``run_id``, by which the tab tells where another run
lies there now (``static/address.js`` has the names).
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit

from ...records.errors import UsageError
from .finding import Finding
from .run_report import RunReport

MOST_LINKS = 6
"""Steps that a finding links to."""


def checked_address(address: str) -> str:
    """Return TensorBoard's address without what follows a ``#``; raises ``UsageError``."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(
            f"--tensorboard {address} is no address; pass one as http://localhost:6006, where "
            "TensorBoard shows this run"
        )
    return address.partition("#")[0].rstrip("/")


def step_links(
    report: RunReport, model: str, finding: Finding, tensorboard: str | None
) -> list[tuple[int, str]]:
    """Return the finding's steps, each with its link; none without a TensorBoard."""
    if tensorboard is None or report.source.path is None:
        return []
    where = {
        "run": _folder(report.source.path),
        "id": report.run.run_id if report.run is not None else "",
        "model": model,
    }
    kept = "".join(f"&p.hooktrace.{k}={quote(v, safe='')}" for k, v in where.items() if v)
    return [
        (step, f"{tensorboard}/#hooktrace{kept}&p.hooktrace.step={step}")
        for step in finding.steps[:MOST_LINKS]
    ]


def _folder(path: str) -> str:
    """Return the run's folder, whole, as the tab's run is named by its end."""
    folder = path if "://" in path else Path(path).resolve().as_posix()
    return folder.rstrip("/").removesuffix("/plugins/hooktrace")
