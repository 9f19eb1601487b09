"""``hooktrace check``: what is wrong with a communication hook, found by running it.

A table of scenarios (what gradients come) times a table of oracles (what is asked of the results):

    command.py --HookSpec--> launch.py --> host.py --fork--> rank.py, once a rank and scenario
    command.py <--CheckResult-- launch.py <-- host.py <--CaseResult--+

    scenarios.py --gradients.py--> calls.py --result--> runs.py --> oracles.py --> Flaw

No scenario can hang the check: at a deadline its ranks write their stacks and are ended, and the
next one starts from fresh processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .result import CaseResult, CheckResult, Problem

__all__ = ["CaseResult", "CheckResult", "Problem", "check_hook"]


def check_hook(
    hook: Callable[..., Any] | str,
    make_state: Callable[..., Any] | str | None = None,
    *,
    ranks: int = 2,
    local: bool = False,
    timeout_s: float = 20.0,
    cases: Sequence[str] = (),
) -> CheckResult:
    """Run a communication hook through all cases on real gloo ranks; for tests.

    ``hook``: the hook, importable from its module, or ``"package.module:attribute"``; for FSDP's
    collectives a ``ScatterHook`` or a ``GatherHook``, which takes no state.  ``make_state``: a
    callable or its name, called on each rank for each model, with the process group if it needs an
    argument.  ``local``: the hook's results differ between ranks by design.  ``timeout_s``: of one
    case.  ``cases``: the keys of some cases only, as ``--case`` takes them.

    Returns the result if nothing failed, warnings included; takes about 15 seconds, and leaves no
    process.  Raises ``AssertionError`` with the result as a table if anything failed, ``TypeError``
    for a hook that cannot be handed to another process, ``UsageError`` for one that is not there.
    """
    from .command import as_text
    from .launch import check
    from .spec import HookSpec

    spec = HookSpec.of(hook, make_state, local=local)
    (result,) = check([spec], ranks=ranks, timeout_s=timeout_s, cases=cases)
    if result.failed:
        raise AssertionError(as_text(result))
    return result
