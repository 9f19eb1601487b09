"""The command itself: all subcommands in the order of ``--help``, and how a refusal is said."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from . import hooks, records, training


def _without_values(params: list[Any]) -> list[Any]:
    """Return options of which flags take no value in ``--help``."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class _Command(typer.core.TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        """Return all options, as they are shown."""
        return _without_values(super().get_params(ctx))


class _Commands(typer.core.TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        """Return all options, as they are shown."""
        return _without_values(super().get_params(ctx))

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
            from ...records.errors import UsageError  # help and lists answer sooner without records

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


for command in (
    training.demo,
    records.report,
    records.compare,
    records.hang,
    training.ctl,
    training.top,
    records.export,
    hooks.hooks,
    hooks.check,
    hooks.bench,
    training.tune,
    training.run,
):
    main.command(cls=_Command)(command)
