"""Commands that read the record files of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_On = Annotated[
    str | None,
    typer.Option(
        help="Sum the ranks up one by one, for a run of any size: on local, local:4, "
        "dask://host:port or ray://host:port.",
        show_default=False,
    ),
]


def report(
    run: Annotated[
        str, typer.Argument(help="The logdir of RecordFileExporter, as runs/demo; or its URL.")
    ],
    *,
    html: Annotated[
        Path | None, typer.Option(help="Write it as one HTML file with pictures too.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Of this model only.")] = None,
    tensorboard: Annotated[
        str | None, typer.Option(help="Findings link to this TensorBoard's Comm Timeline.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print findings and facts as JSON, for programs.")
    ] = False,
    on: _On = None,
) -> None:
    """Say what is exposed and why, who is late, what is lost: findings from record files."""
    from ...analysis.report.command import run_report

    if on is not None:
        from ...analysis.summaries.command import run_summary
        from ...records.errors import UsageError

        if html is not None or tensorboard is not None:
            raise UsageError("summaries have no pictures; leave out --html, or --on")
        run_summary(run, on=on, model=model, as_json=as_json)
        return

    run_report(run, html=html, model=model, as_json=as_json, tensorboard=tensorboard)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C]...",
            help="Logdirs of runs, all against A; repeated runs of a set-up as A1,A2 or 'A*'.",
            show_default=False,
        ),
    ],
    *,
    html: Annotated[
        Path | None, typer.Option(help="Write it as one HTML file with pictures too.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Of this model only; A_NAME=B_NAME if names differ.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print differences as JSON, for programs.")
    ] = False,
    on: _On = None,
) -> None:
    """Say what differs between runs, by how much, and which stages and buckets account for it."""
    from ...analysis.compare.command import run_compare

    run_compare(runs, html=html, model=model, as_json=as_json, on=on)


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
    from ...analysis.report.command import run_export

    run_export(run, out=out, rank=rank)


_Model = Annotated[str | None, typer.Option(help="Of this model only.")]
_Calibrated = Annotated[
    str, typer.Argument(help="The logdir of a calibrated run, as of Tracer(calibrate=True).")
]


def whatif(
    run: _Calibrated,
    *,
    hook: Annotated[
        list[str] | None,
        typer.Option(help="With this hook; may be repeated.", show_default="all that were tried"),
    ] = None,
    bucket_cap_mb: Annotated[
        list[float] | None,
        typer.Option(help="With this limit of bucket sizes; may be repeated.", show_default=False),
    ] = None,
    ranks: Annotated[int | None, typer.Option(help="On so many ranks.", show_default=False)] = None,
    network: Annotated[
        str | None,
        typer.Option(help="On this network: 25gbit,30us.", show_default="as the run saw it"),
    ] = None,
    per_host: Annotated[
        int | None, typer.Option(help="So many ranks share a host's link.", show_default=False)
    ] = None,
    model: _Model = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one HTML file with advice and a sweep of bandwidths.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write predicted steps here, for TensorBoard's tab.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print predictions as JSON, for programs.")
    ] = False,
) -> None:
    """Predict the step under other hooks, buckets, ranks or networks, without running it."""
    from ..whatif.command import WhatIf, run_whatif

    asked = WhatIf(
        hooks=tuple(hook or ()), caps_mb=tuple(bucket_cap_mb or ()), ranks=ranks, network=network,
        per_host=per_host, model=model,
    )  # fmt: skip
    run_whatif(run, asked, as_json=as_json, html=html, write=write)


def advise(
    run: _Calibrated,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="What --verify runs in place of hooktrace demo: the command that started the run, "
            "as -- torchrun --nproc-per-node 2 train.py. It trains for real, whatever it writes.",
            show_default=False,
        ),
    ] = None,
    *,
    model: _Model = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run the best two, and what is: COMMAND, or the demo.")
    ] = False,
    verify_steps: Annotated[
        int, typer.Option(help="Of each of these runs, which is ended then.")
    ] = 300,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Say which hook and buckets would be faster, by how much, and what they lose; or none."""
    from ..whatif.command import run_advise

    run_advise(
        run,
        model=model,
        as_json=as_json,
        verify_steps=verify_steps if verify else None,
        command=command or (),
    )
