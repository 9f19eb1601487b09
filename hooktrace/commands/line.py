"""The command line: options, and a call; each subcommand's work is in its own package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


class _Commands(typer.core.TyperGroup):
    def invoke(self, context: Any) -> Any:
        """Turn what cannot be done into a line on standard error and exit code 2."""
        try:
            return super().invoke(context)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            typer.echo(
                f"hooktrace {context.invoked_subcommand}: torch is not installed here; report, "
                "export and TensorBoard's tab need none, this does: pip install torch",
                err=True,
            )
            raise typer.Exit(2) from None
        except Exception as error:
            from ..records.errors import UsageError  # help and lists answer sooner without records

            if not isinstance(error, UsageError):
                raise
            typer.echo(f"hooktrace {context.invoked_subcommand}: {error}", err=True)
            raise typer.Exit(2) from None


main = typer.Typer(
    name="hooktrace",
    cls=_Commands,
    help="Instrumentation and debugging for PyTorch DDP communication hooks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@main.callback()
def _root() -> None:
    """Without it typer would turn a single subcommand into the whole command line."""


@main.command()
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
    hold: Annotated[
        bool, typer.Option("--hold", help="Serve the metrics again at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Train a small language model on N ranks and show its gradient communication."""
    from .demo import DemoOptions, run

    options = DemoOptions(
        hook=hook, ranks=ranks, steps=steps, out=out, port=port,
        bucket_cap_mb=bucket_cap_mb, hold=hold,
    )  # fmt: skip
    try:
        code = run(options)
    except OSError as error:  # a disk or a port that was there when the options were checked
        typer.echo(f"hooktrace demo: {error.strerror or error}", err=True)
        code = 1
    raise typer.Exit(code)


@main.command()
def report(
    run: Annotated[Path, typer.Argument(help="The logdir of RecordFileExporter, as runs/demo.")],
    *,
    html: Annotated[
        Path | None, typer.Option(help="Write it as one HTML file with pictures too.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Of this model only.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print findings and facts as JSON, for programs.")
    ] = False,
) -> None:
    """Say what is exposed and why, who is late, what is lost: findings from record files."""
    from ..analysis.report.command import run_report

    run_report(run, html=html, model=model, as_json=as_json)


@main.command()
def export(
    run: Annotated[Path, typer.Argument(help="The logdir of RecordFileExporter, as runs/demo.")],
    *,
    out: Annotated[Path, typer.Option(help="The file to write; .gz compresses it.")],
    rank: Annotated[int | None, typer.Option(help="Only this rank, not all.")] = None,
) -> None:
    """Put all ranks into one trace for Perfetto, with arrows between the ranks of a bucket."""
    from ..analysis.report.command import run_export

    run_export(run, out=out, rank=rank)


@main.command()
def hooks() -> None:
    """List the standard hooks."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from ..hooks import catalogue

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "hooktrace.hooks.", "kind", "rounds", "what it does"):
        table.add_column(column, no_wrap=column != "what it does")
    for entry in catalogue():
        rounds = "1" if entry.is_single_round else "several"
        table.add_row(entry.name, entry.hook_name, entry.kind, rounds, entry.what)
    Console(highlight=False).print(table)


@main.command()
def check(
    hook: Annotated[
        str | None, typer.Argument(help="The hook: package.module:attribute.", show_default=False)
    ] = None,
    *,
    state: Annotated[
        str | None,
        typer.Option(help="What makes its state: package.module:attribute.", show_default=False),
    ] = None,
    standard: Annotated[
        bool, typer.Option("--standard", help="All standard hooks and torch's own instead.")
    ] = False,
    ranks: Annotated[int, typer.Option(help="Processes on this machine.")] = 2,
    local: Annotated[
        bool, typer.Option("--local", help="Results differ between ranks by design.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one case may take.")] = 20.0,
    case: Annotated[
        list[str] | None, typer.Option(help="Only this case; may be repeated.", show_default=False)
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a table for a README.")
    ] = False,
) -> None:
    """Find out what is wrong with a hook on real ranks; the exit code is 1 if anything is."""
    from ..testing.check.command import run

    code = run(
        hook, state, standard=standard, ranks=ranks, local=local, timeout_s=timeout,
        cases=case or [], markdown=markdown,
    )  # fmt: skip
    raise typer.Exit(code)


@main.command()
def bench(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this group, such as per-bucket; may be repeated."),
    ] = None,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="The standard hooks beside torch's own instead.")
    ] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Comm Timeline in Chromium instead.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="A report on 64 ranks of 1,000 steps instead.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers to this file too.")
    ] = None,
) -> None:
    """Measure what tracing costs on this machine, or how fast the hooks or the views are."""
    from .bench import run

    flags = {"hooks": hooks, "timeline": timeline, "report": report}
    groups = [*(only or []), *(name for name, is_on in flags.items() if is_on)]
    raise typer.Exit(run(groups, quick=quick, json_path=json_path))


@main.command()
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
    from ..records.errors import UsageError  # the script is run without this module, by __main__

    raise UsageError("start it as the process's own command, as hooktrace run train.py")
