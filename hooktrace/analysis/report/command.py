"""What the two subcommands do; the command line only passes its options on."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..perfetto import Exported, export
from ..timeline import Timeline
from .as_json import report_json
from .read import ReportError, check_writable, progress_bar, read_run
from .run_report import build_report
from .terminal import print_report


def run_report(
    run: Path, *, html: Path | None = None, model: str | None = None, as_json: bool = False
) -> None:
    """Print the report of a run, and write it as one HTML file; raises ``ReportError``.

    ``as_json``: print it for programs, and nothing else.
    """
    console = Console(highlight=False, markup=False)
    if html is not None:
        check_writable(html)
    timeline = read_run(run, Console(stderr=True))
    _check_model(timeline, model)
    report = build_report(timeline, model=model)
    if as_json:
        console.file.write(report_json(report))
    else:
        print_report(console, report)
    if html is not None:
        from .page import page  # Jinja2, which a report in the terminal does without

        _write(html, page(report))
    if html is not None and not as_json:
        console.print()
        console.print(Text(f"with pictures: {html}"), soft_wrap=True)


def _check_model(timeline: Timeline, model: str | None) -> None:
    if model is not None and model not in timeline.models:
        raise ReportError(
            f"no model is called {model!r}; pass --model one of {', '.join(timeline.models)}"
        )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReportError(f"cannot write {path}: {error.strerror}; pass another file") from error


def run_export(run: Path, *, out: Path, rank: int | None = None) -> None:
    """Write all ranks of a run, or one, as one trace; raises ``ReportError``."""
    console = Console(highlight=False, markup=False)
    check_writable(out)
    timeline = read_run(run, Console(stderr=True), rank)
    try:
        with progress_bar(Console(stderr=True)) as bar:
            task = bar.add_task("writing", total=None)
            exported: Exported = export(
                timeline, out, progress=lambda done: bar.update(task, completed=done)
            )
    except OSError as error:
        raise ReportError(f"cannot write {out}: {error.strerror}; pass another file") from error
    how_many = "1 rank" if exported.ranks == 1 else f"{exported.ranks} ranks"
    console.print(
        f"{out}: {how_many}, {exported.slices:,} slices, {exported.arrows:,} arrows "
        f"between ranks, {out.stat().st_size / 1e6:.1f} MB; open https://ui.perfetto.dev and drop "
        "it there",
        soft_wrap=True,
    )
    if timeline.unaligned:
        ranks = ", ".join(map(str, timeline.unaligned))
        console.print(
            Text(f"rank {ranks}: clock unknown, placed by its wall clock", style="yellow"),
            soft_wrap=True,
        )
