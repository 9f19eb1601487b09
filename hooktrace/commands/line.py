"""The command line: the options of each subcommand, a call of what it is, refusals, exit codes.

Whatever a subcommand needs is imported when it is called, so that help and lists answer at once.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


class _WithFlags:
    """A command whose flags are shown without a value in ``--help``."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all options, as they are shown."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of what it is mixed into
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class _Command(_WithFlags, typer.core.TyperCommand):
    pass


class _Commands(_WithFlags, typer.core.TyperGroup):
    def invoke(self, context: Any) -> Any:
        """Turn what cannot be done into a line on standard error and exit code 2."""
        try:
            return super().invoke(context)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            typer.echo(
                f"hooktrace {context.invoked_subcommand}: torch is not installed here; report, "
                "export and TensorBoard's tab need none, this does: pip install 'hooktrace[all]'",
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


def _show_version(is_asked: bool) -> None:
    if is_asked:
        # The package itself: a checkout on PYTHONPATH is not installed.
        typer.echo(f"hooktrace {sys.modules['hooktrace'].__version__}")
        raise typer.Exit


@main.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options of the command itself."""


_Run = Annotated[str, typer.Argument(help="The logdir of RecordFileExporter, such as runs/demo.")]
_Html = Annotated[Path | None, typer.Option(help="Also write it as one HTML file with pictures.")]
_On = Annotated[
    str, typer.Option(help="What reads the files: local, dask://HOST:PORT or ray://HOST:PORT.")
]
_Every = Annotated[
    int, typer.Option(help="Read the buckets of every K-th step only, for large runs.")
]
_Connect = Annotated[str | None, typer.Option(help="Rank 0's HOST:PORT, in place of a run.")]


def demo(
    *,
    hook: Annotated[str, typer.Option(help="Any name that 'hooktrace hooks' lists.")] = "allreduce",
    ranks: Annotated[int, typer.Option(help="Processes on this machine.", min=1)] = 2,
    steps: Annotated[int, typer.Option(help="Training steps.", min=1)] = 100,
    out: Annotated[Path, typer.Option(help="Directory for all files.")] = Path("runs/demo"),
    port: Annotated[
        int,
        typer.Option(
            help="Rank r serves metrics on port + r; 0 takes free ports.", min=0, max=65535
        ),
    ] = 9464,
    bucket_cap_mb: Annotated[float, typer.Option(help="DDP's bucket size limit.", min=0)] = 2.0,
    fsdp: Annotated[
        bool, typer.Option("--fsdp", help="Shard the model (FSDP2) instead of using DDP.")
    ] = False,
) -> None:
    """Train a small language model on N ranks and show its gradient communication."""
    from .demo import DemoOptions, run

    options = DemoOptions(
        hook=hook, ranks=ranks, steps=steps, out=out, port=port, bucket_cap_mb=bucket_cap_mb,
        fsdp=fsdp,
    )  # fmt: skip
    raise typer.Exit(run(options))


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
    connect: _Connect = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Tell all ranks of a job that runs what to do, or ask where they are."""
    from .ctl import run_ctl

    raise typer.Exit(run_ctl(words, connect=connect, as_json=as_json))


def top(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="The logdir of RecordFileExporter, such as runs/demo.", show_default=False
        ),
    ] = None,
    *,
    connect: _Connect = None,
    sort: Annotated[
        Literal["delay", "period", "exposed", "anomalies", "rank"],
        typer.Option(help="Which ranks are on top: those with the most of it."),
    ] = "delay",
    model: Annotated[
        str, typer.Option(help="The model; default: the one with the last step.")
    ] = "",
) -> None:
    """Show all ranks of a job that runs, live: who is late, the last steps, hangs."""
    from .top import run_top

    run_top(run, connect=connect, sort=sort, model=model)


def tune(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="What starts the job.")
    ],
    *,
    minutes: Annotated[float, typer.Option(help="Approximate time of all starts.")] = 15.0,
    steps: Annotated[int, typer.Option(help="Measured steps of each hook.")] = 60,
    hooks: Annotated[
        str,
        typer.Option(help="Hooks to try, such as fp16,powersgd-rank4; default: all that average."),
    ] = "",
    caps: Annotated[str, typer.Option(help="Other bucket_cap_mb to try, such as 5,50.")] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for record files; default: runs/tune-TIME.", show_default=False
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the numbers to this file.", show_default=False)
    ] = None,
) -> None:
    """Find out which hook and bucket size a job is fastest with, by runs of it."""
    from ..analysis.document.output import check_writable
    from ..records.errors import UsageError
    from .tune.run import tune as measured

    if json is not None:
        check_writable(json)
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
    from ..records.errors import UsageError  # the script is run without this module, by __main__

    raise UsageError("start it as the process's own command, as hooktrace run train.py")


def report(
    run: _Run,
    *,
    html: _Html = None,
    model: Annotated[str | None, typer.Option(help="Restrict to this model.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print findings and facts as JSON, for programs.")
    ] = False,
    on: _On = "local",
    every: _Every = 1,
) -> None:
    """Say what is exposed and why, who is late, what is lost: findings from record files."""
    from ..analysis.report.view import run_report

    run_report(run, html=html, model=model, as_json=as_json, on=on, every=every)


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C]...",
            help="Logdirs of runs, each compared with A.",
            show_default=False,
        ),
    ],
    *,
    html: _Html = None,
    model: Annotated[
        str | None, typer.Option(help="Restrict to this model; A_NAME=B_NAME if names differ.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print differences as JSON, for programs.")
    ] = False,
    on: _On = "local",
    every: _Every = 1,
) -> None:
    """Say what differs between runs, by how much, and which stages and buckets account for it."""
    from ..analysis.compare.view import run_compare

    run_compare(runs, html=html, model=model, as_json=as_json, on=on, every=every)


def hang(
    run: _Run,
    *,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Also print the recorded stacks, rank by rank.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print hangs, with stacks, as JSON, for programs.")
    ] = False,
) -> None:
    """Say why a job hung: who waited for whom, since when; the exit code is 1 if it did not go on.

    It is 3 where no hang is recorded, but files without their end stop at different steps.
    """
    from ..analysis.hang import run_hang

    raise typer.Exit(run_hang(run, stacks=stacks, as_json=as_json))


def export(
    run: _Run,
    *,
    out: Annotated[Path, typer.Option(help="The file to write; .gz compresses it.")],
    rank: Annotated[int | None, typer.Option(help="Only this rank, not all.")] = None,
) -> None:
    """Write one trace of all ranks for Perfetto."""
    from ..analysis.perfetto import run_export

    run_export(run, out=out, rank=rank)


def hooks() -> None:
    """List the standard hooks."""
    from ..hooks import catalogue
    from ..hooks.sharded import SHARDED_HOOKS

    typer.echo(f"{'name':<24}{'hooktrace.hooks.':<31}{'kind':<11}rounds")
    for entry in catalogue():
        rounds = "1" if entry.is_single_round else "several"
        typer.echo(f"{entry.name:<24}{entry.hook_name:<31}{entry.kind:<11}{rounds}")
        typer.echo(f"    {entry.what}")
    typer.echo("\nfor FSDP2, of n ranks with parts of p elements")
    typer.echo(f"{'hooktrace.fsdp.hooks.':<44}in the place of")
    for one in SHARDED_HOOKS:
        typer.echo(f"{one.call:<44}{one.takes_place_of.replace('_', '-')}")
        typer.echo(f"    {one.what}\n    sends {one.sends}")


def check(
    hook: Annotated[str, typer.Argument(help="The hook: package.module:attribute.")],
    *,
    state: Annotated[
        str | None,
        typer.Option(help="What makes its state: package.module:attribute.", show_default=False),
    ] = None,
    ranks: Annotated[int, typer.Option(help="Processes on this machine.")] = 2,
    local: Annotated[
        bool, typer.Option("--local", help="Results differ between ranks by design.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one case may take.")] = 20.0,
    case: Annotated[
        list[str] | None, typer.Option(help="Only this case; may be repeated.", show_default=False)
    ] = None,
) -> None:
    """Find out what is wrong with a hook on real ranks; the exit code is 1 if anything is."""
    from ..testing.check import launch, spec

    if find_spec("torch") is None:  # which the hook's process alone imports
        raise ModuleNotFoundError(name="torch")
    told: dict[tuple[str, str], str] = {}
    sys.path.insert(0, os.getcwd())
    result = launch.check(
        spec.HookSpec.of(hook, state, local=local), ranks=ranks, timeout_s=timeout,
        cases=case or [], seen=lambda one: typer.echo(one.text(told)),
    )  # fmt: skip
    typer.echo(result.summary())
    raise typer.Exit(1 if result.failed else 0)


def bench(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers to this file too.")
    ] = None,
) -> None:
    """Measure what tracing costs here, per bucket and in a whole step, in about 90 seconds."""
    from ..analysis.document.output import check_writable
    from .bench import run

    if json_path is not None:
        check_writable(json_path)
    raise typer.Exit(run(quick=quick, json_path=json_path))


for command in (
    demo, report, compare, hang, ctl, top, export, hooks, check, bench, tune, run,
):  # fmt: skip
    main.command(cls=_Command)(command)
