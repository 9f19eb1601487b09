"""Commands about hooks, and about what hooktrace costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def hooks() -> None:
    """List the standard hooks."""
    from ...hooks import catalogue
    from ...hooks.sharded import SHARDED_HOOKS

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
    from ...testing.check.command import run

    code = run(
        hook, state, standard=standard, ranks=ranks, local=local, timeout_s=timeout,
        cases=case or [], markdown=markdown,
    )  # fmt: skip
    raise typer.Exit(code)


def bench(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers to this file too.")
    ] = None,
) -> None:
    """Measure what tracing costs here, per bucket and in a whole step, in about 90 seconds."""
    from ..bench import run

    raise typer.Exit(run(quick=quick, json_path=json_path))
