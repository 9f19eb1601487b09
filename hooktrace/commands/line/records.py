"""Commands that read the record files of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_Html = Annotated[Path | None, typer.Option(help="Write it as one HTML file with pictures too.")]
_On = Annotated[
    str, typer.Option(help="Who reads the files: local, dask://HOST:PORT or ray://HOST:PORT.")
]
_Every = Annotated[
    int, typer.Option(help="Read the buckets of every K-th step alone, of a large run.")
]


def report(
    run: Annotated[
        str, typer.Argument(help="The logdir of RecordFileExporter, as runs/demo; or its URL.")
    ],
    *,
    html: _Html = None,
    model: Annotated[str | None, typer.Option(help="Of this model only.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print findings and facts as JSON, for programs.")
    ] = False,
    on: _On = "local",
    every: _Every = 1,
) -> None:
    """Say what is exposed and why, who is late, what is lost: findings from record files."""
    from ...analysis.report.command import run_report

    run_report(run, html=html, model=model, as_json=as_json, on=on, every=every)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C]...",
            help="Logdirs of runs, or their URLs, each compared with A.",
            show_default=False,
        ),
    ],
    *,
    html: _Html = None,
    model: Annotated[
        str | None, typer.Option(help="Of this model only; A_NAME=B_NAME if names differ.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print differences as JSON, for programs.")
    ] = False,
    on: _On = "local",
    every: _Every = 1,
) -> None:
    """Say what differs between runs, by how much, and which stages and buckets account for it."""
    from ...analysis.compare.command import run_compare

    run_compare(runs, html=html, model=model, as_json=as_json, on=on, every=every)


def hang(
    run: Annotated[
        str, typer.Argument(help="The logdir of RecordFileExporter, as runs/demo; or its URL.")
    ],
    *,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="With the recorded stacks, rank by rank.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print hangs, with stacks, as JSON, for programs.")
    ] = False,
) -> None:
    """Say why a job hung: who waited for whom, since when; the exit code is 1 if it did not go on.

    It is 3 where no hang is recorded, but files without their end stop at different steps.
    """
    from ...analysis.hang.command import run_hang

    raise typer.Exit(run_hang(run, stacks=stacks, as_json=as_json))


def export(
    run: Annotated[
        str, typer.Argument(help="The logdir of RecordFileExporter, as runs/demo; or its URL.")
    ],
    *,
    out: Annotated[Path, typer.Option(help="The file to write; .gz compresses it.")],
    rank: Annotated[int | None, typer.Option(help="Only this rank, not all.")] = None,
) -> None:
    """Put all ranks into one trace for Perfetto, with arrows between the ranks of a bucket."""
    from ...analysis.perfetto.command import run_export

    run_export(run, out=out, rank=rank)
