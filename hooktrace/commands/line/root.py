"""The command itself: all subcommands in the order of ``--help``, and how a refusal is said."""

from __future__ import annotations

from typing import Any

import typer

from . import hooks, records, training


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


@main.callback()
def _root() -> None:
    """Without it typer would turn a single subcommand into the whole command line."""


for command in (
    training.demo,
    records.report,
    records.compare,
    records.whatif,
    records.advise,
    records.hang,
    training.ctl,
    training.top,
    records.export,
    hooks.hooks,
    hooks.check,
    hooks.bench,
    training.run,
):
    main.command()(command)
