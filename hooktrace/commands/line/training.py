"""Commands that train, or that speak to a job that does."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated

import typer


def demo(
    *,
    hook: Annotated[str, typer.Option(help="Any name that 'hooktrace hooks' lists.")] = "allreduce",
    ranks: Annotated[int, typer.Option(help="Processes on this machine.")] = 2,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 100,
    out: Annotated[Path, typer.Option(help="Directory for all files.")] = Path("runs/demo"),
    port: Annotated[
        int, typer.Option(help="Rank r serves metrics on port + r; 0 takes free ports.")
    ] = 9464,
    bucket_cap_mb: Annotated[float, typer.Option(help="DDP's bucket size limit.")] = 2.0,
    fsdp: Annotated[
        bool, typer.Option("--fsdp", help="Shard the model (FSDP2), in the place of DDP.")
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Serve the metrics again at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Train a small language model on N ranks and show its gradient communication."""
    from ..demo import DemoOptions, run

    options = DemoOptions(
        hook=hook, ranks=ranks, steps=steps, out=out, port=port,
        bucket_cap_mb=bucket_cap_mb, hold=hold, fsdp=fsdp,
    )  # fmt: skip
    try:
        code = run(options)
    except OSError as error:  # a disk or a port that was there when the options were checked
        typer.echo(f"hooktrace demo: {error.strerror or error}", err=True)
        code = 1
    raise typer.Exit(code)


def ctl(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] COMMAND",
            help="The logdir of RecordFileExporter, and status, stacks [RANK], detail N, probe N, "
            "pause, resume or flush.",
        ),
    ],
    *,
    connect: Annotated[
        str | None, typer.Option(help="The hub's HOST:PORT, in place of a run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Tell all ranks of a job that runs what to do, or ask where they are."""
    from ..ctl import run_ctl

    raise typer.Exit(run_ctl(words, connect=connect, as_json=as_json))


def top(
    run: Annotated[
        Path | None,
        typer.Argument(help="The logdir of RecordFileExporter, as runs/demo.", show_default=False),
    ] = None,
    *,
    connect: Annotated[
        str | None, typer.Option(help="The hub's HOST:PORT, in place of a run.")
    ] = None,
) -> None:
    """Show all ranks of a job that runs, live: who is late, the last steps, hangs."""
    from ..top import run_top

    run_top(run, connect=connect)


def tune(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="What starts the job.")
    ],
    *,
    minutes: Annotated[float, typer.Option(help="For all of it, about.")] = 15.0,
    steps: Annotated[int, typer.Option(help="Steps of each hook that count.")] = 60,
    hooks: Annotated[
        str, typer.Option(help="Hooks to try, by commas, as fp16,powersgd-rank4; all that average.")
    ] = "",
    caps: Annotated[
        str, typer.Option(help="Other bucket_cap_mb to try, by commas; what differs.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Directory for files, record files too.", show_default=False),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the numbers to this file.", show_default=False)
    ] = None,
) -> None:
    """Find out which hook and bucket size a job is fastest with, by runs of it."""
    from ...records.errors import UsageError
    from ..tune.run import tune as measured

    try:
        limits = [float(cap) for cap in caps.split(",") if cap]
    except ValueError:
        limits = [0.0]
    if not all(0 < cap < inf for cap in limits):
        raise UsageError(f"--caps {caps} are no sizes; pass MB by commas, as 5,25")
    names = [name.strip() for name in hooks.split(",") if name]
    raise typer.Exit(
        measured(
            command, minutes=minutes, steps=steps, hooks=names, caps=limits, out=out,
            json_path=json,
        )
    )  # fmt: skip


def run(
    target: Annotated[
        str, typer.Argument(metavar="SCRIPT [ARGS]...", help="The script and its arguments.")
    ],
    *,
    module: Annotated[
        str | None, typer.Option("-m", help="A module in place of the script.", show_default=False)
    ] = None,
) -> None:
    """Run a training script as it is, with each of its DDP models traced."""
    from ...records.errors import UsageError  # the script is run without this module, by __main__

    raise UsageError("start it as the process's own command, as hooktrace run train.py")
