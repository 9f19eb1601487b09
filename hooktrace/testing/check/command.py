"""``hooktrace check`` behind its options: checks them, runs, shows progress, prints."""

from __future__ import annotations

import os
import sys

from rich.console import Console

from ...records.errors import UsageError
from .launch import check
from .results import CaseResult
from .spec import HookSpec
from .table import as_markdown, print_overview, print_result


def run(
    hook: str | None,
    state: str | None,
    *,
    standard: bool,
    ranks: int,
    local: bool,
    timeout_s: float,
    cases: list[str],
    markdown: bool,
) -> int:
    """Check a hook, or all standard ones; returns 1 where anything failed, else 0.

    Raises ``UsageError`` for what cannot be checked.
    """
    if standard == (hook is not None):
        raise UsageError("pass a hook as package.module:attribute, or --standard for all of them")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if hook is None:
        from .standard import standard_hooks

        specs = standard_hooks()
    else:
        specs = [HookSpec.of(hook, state, local=local)]
    console = Console(highlight=False)
    # A redirected table keeps its width, whatever the terminal that is not there would have.
    if not console.is_terminal:
        console.width = 160
    waiting = Console(stderr=True, highlight=False)
    with waiting.status("starting") as status:

        def seen(spec: HookSpec, result: CaseResult) -> None:
            status.update(f"{spec.name}, {result.case}: {result.status}")

        results = check(specs, ranks=ranks, timeout_s=timeout_s, cases=cases, seen=seen)
    if markdown:
        console.print(as_markdown(results), markup=False, soft_wrap=True)
    elif hook is None:
        print_overview(console, results)
    else:
        print_result(console, results[0])
    return 1 if any(result.failed for result in results) else 0
