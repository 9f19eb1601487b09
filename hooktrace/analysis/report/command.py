"""What the two subcommands do: read a run, print and write; what cannot be is a ``UsageError``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ...records.errors import UsageError
from ...records.units import named_ranks
from ..document.terminal import show
from ..document.tree import Node
from ..perfetto import export
from ..run.engines import LOCAL
from ..run.files import progress_bar, read_run
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
    console = Console(highlight=False, markup=False)
    if html is not None:
        check_writable(html)
    run = read_run(path, on=on, every=every)
    if model is not None and model not in run.model_names:
        raise UsageError(
            f"no model is called {model!r}; pass --model one of {', '.join(run.model_names)}"
        )
    report = build_report(run, model=model, path=str(path))
    if as_json:
        console.file.write(report_json(report))
    else:
        show(console, document(report, pictures=False))
    if html is not None:
        write_page(html, "hooktrace report", document(report, pictures=True))
    if html is not None and not as_json:
        console.print()
        console.print(Text(f"with pictures: {html}"), soft_wrap=True)


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


def check_writable(path: Path) -> None:
    """Raise ``UsageError`` where a file cannot be made at ``path``, before any work is done."""
    existed = path.exists()
    with writing(path), path.open("ab"):
        pass
    if not existed:
        path.unlink()


def write_page(path: Path, title: str, nodes: Iterable[Node]) -> None:
    """Write a document as one HTML file; raises ``UsageError`` where that cannot be."""
    from ..document.html import page  # Jinja2, which a terminal does without

    with writing(path):
        path.write_text(page(title, nodes), encoding="utf-8")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise ``UsageError`` for what goes wrong while ``path`` is written."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; pass a file in another directory, one that "
            "you may write"
        ) from error
