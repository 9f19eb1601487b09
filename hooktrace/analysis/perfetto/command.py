"""What the subcommand does: read a run, and write one trace; raises ``UsageError``."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ...records.units import named_ranks
from ..document.html import check_writable, writing
from ..run.files import progress_bar, read_run
from .export import export


def run_export(path: str | os.PathLike[str], *, out: Path, rank: int | None = None) -> None:
    """Write all ranks of a run, or one, as one trace; raises ``UsageError``."""
    console = Console(highlight=False, markup=False)
    check_writable(out)
    run = read_run(path, rank)
    with writing(out), progress_bar() as bar:
        task = bar.add_task("writing", total=None)
        exported = export(run, out, progress=lambda done: bar.update(task, completed=done))
    how_many = "1 rank" if exported.ranks == 1 else f"{exported.ranks} ranks"
    console.print(
        f"{out}: {how_many}, {exported.slices:,} slices, {exported.arrows:,} arrows "
        f"between ranks, {out.stat().st_size / 1e6:.1f} MB; open https://ui.perfetto.dev and drop "
        "it there",
        soft_wrap=True,
    )
    if run.unaligned:
        who = named_ranks(run.unaligned)
        console.print(
            Text(f"{who}: clock unknown, placed by its wall clock", style="yellow"),
            soft_wrap=True,
        )
