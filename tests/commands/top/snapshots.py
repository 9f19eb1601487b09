"""Snapshots of made-up jobs, and what a terminal of some size shows of them."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from hooktrace.commands.top.picture import Picture, View
from hooktrace.ranks.whole_job.job_steps import JobSteps
from hooktrace.ranks.whole_job.snapshot import JobSnapshot
from tests.ranks.whole_job.parts import Seconds, message_of


def job(
    ranks: int = 4, steps: int = 20, *, late: int = 3, hangs: tuple[str, ...] = ()
) -> JobSnapshot:
    """Return a job of hosts of eight ranks, one of which comes 7 ms after the others."""
    hub = JobSteps(ranks, Seconds())
    for first in range(0, ranks, 8):
        of_host = range(first, min(first + 8, ranks))
        message = message_of(of_host, range(1, steps + 1), late=late, host=f"node{first // 8}")
        hub.take(first, message)
    return hub.snapshot("", hangs)


def screen(
    shown: JobSnapshot, view: View | None = None, *, width: int = 80, height: int = 24
) -> list[str]:
    output = StringIO()
    console = Console(
        file=output, width=width, height=height, force_terminal=True, color_system=None
    )
    console.print(Picture("runs/a", view or View(), shown), height=height, end="")
    return [line.rstrip() for line in output.getvalue().split("\n")]
