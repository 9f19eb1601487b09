"""What the two subcommands do: find record files, read them, print and write.

A progress bar shows on a terminal; what cannot be done is a ``UsageError`` in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from ...records.errors import UsageError
from ...records.files import find_records, has_old_traces
from ...records.units import listed
from ..perfetto import export
from ..timeline import Timeline, load
from .run_report import build_report, report_json
from .terminal import print_report


def run_report(
    run: Path, *, html: Path | None = None, model: str | None = None, as_json: bool = False
) -> None:
    """Print the report of a run, and write it as one HTML file; raises ``UsageError``.

    ``as_json``: print it for programs, and nothing else.
    """
    console = Console(highlight=False, markup=False)
    if html is not None:
        _check_writable(html)
    timeline = _read_run(run)
    if model is not None and model not in timeline.models:
        raise UsageError(
            f"no model is called {model!r}; pass --model one of {', '.join(timeline.models)}"
        )
    report = build_report(timeline, model=model)
    if as_json:
        console.file.write(report_json(report))
    else:
        print_report(console, report)
    if html is not None:
        from .page import page  # Jinja2, which a report in the terminal does without

        with _writing(html):
            html.write_text(page(report), encoding="utf-8")
    if html is not None and not as_json:
        console.print()
        console.print(Text(f"with pictures: {html}"), soft_wrap=True)


def run_export(run: Path, *, out: Path, rank: int | None = None) -> None:
    """Write all ranks of a run, or one, as one trace; raises ``UsageError``."""
    console = Console(highlight=False, markup=False)
    _check_writable(out)
    timeline = _read_run(run, rank)
    with _writing(out), _progress_bar() as bar:
        task = bar.add_task("writing", total=None)
        exported = export(timeline, out, progress=lambda done: bar.update(task, completed=done))
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


def _check_writable(path: Path) -> None:
    """Raise ``UsageError`` where a file cannot be made at ``path``, before any work is done."""
    existed = path.exists()
    with _writing(path), path.open("ab"):
        pass
    if not existed:
        path.unlink()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; pass a file in another directory, one that "
            "you may write"
        ) from error


def _progress_bar() -> Progress:
    """Return a bar over bytes; it shows on a terminal only, and goes away at the end."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _read_run(run: Path, rank: int | None = None) -> Timeline:
    """Read the record files under a logdir, or those of one rank.

    Raises ``UsageError`` where there is none, or nothing in them can be read.
    """
    traces = _files_of(run)
    if rank is not None and rank not in traces:
        raise UsageError(f"no file of rank {rank} is there; pass --rank one of {listed(traces)}")
    if rank is not None:
        traces = {rank: traces[rank]}
    try:
        with _progress_bar() as bar:
            size = sum(path.stat().st_size for paths in traces.values() for path in paths)
            task = bar.add_task(f"reading {len(traces)} ranks", total=size)
            timeline = load(traces, progress=lambda done, _: bar.update(task, completed=done))
    except OSError as error:
        raise UsageError(
            f"cannot read {error.filename}: {error.strerror}; make the record files readable"
        ) from error
    if not any(len(track.steps) or len(track.buckets) for track in timeline.tracks):
        raise UsageError(_nothing_read(timeline, run))
    return timeline


def _files_of(run: Path) -> dict[int, list[Path]]:
    if not run.exists():
        raise UsageError(f"there is no {run}; pass the logdir that RecordFileExporter was given")
    traces = find_records(run)
    if not traces and has_old_traces(run):
        raise UsageError(
            f"the files in {run} are traces (rank*.trace.json) of hooktrace before 0.1, which this "
            "version does not read; open them in Perfetto as they are, or record the run again"
        )
    if not traces:
        raise UsageError(
            f"there is no record file in {run} or {run / 'plugins' / 'hooktrace'}; pass the logdir "
            "that RecordFileExporter was given, or set HOOKTRACE_RECORD_DIR in the job"
        )
    return traces


def _nothing_read(timeline: Timeline, run: Path) -> str:
    for track in timeline.tracks:
        if track.records.skipped:
            line, reason = track.records.skipped[0]
            return f"nothing in {track.paths[0]} can be read: line {line}: {reason}"
    return (
        f"the record files in {run} hold no step; train with a traced hook for some steps, and end "
        "with tracer.close()"
    )
