"""``hooktrace check``: what is wrong with a communication hook, found by running it.

    spec.py      a hook and its state, by name or by pickle --> HookSpec
    launch.py    starts one host, reads messages, makes a CheckResult a hook
      host.py      has imported the hooks; forks the ranks of each case, waits for them, ends them
        rank.py      one rank in one case, on a real gloo process group
          cases.py     what is tried, with a model from
          training.py  whose gradients are known beforehand
          arithmetic.py  chosen gradients, whose results are judged together by
          verdict.py   against what the wire explains (wire_format.py); causes.py names mistakes
          weights.py    what each rank's gradients weigh in a result
          units.py      what is tried of a hook for FSDP's collectives, called as FSDP does
                        (unit_calls.py), and in a small sharded model
        judge.py     how the ranks ended --> the first cause, pass, warn or fail; stacks.py reads
                     where they stood
    command.py   hooktrace check: options --> results --> tables
    standard.py  all standard hooks, and torch's own

No case can hang the check: its ranks have a deadline, after which they are asked for their stacks
and killed, and the next case starts from fresh processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .judge import CaseResult, CheckResult, Problem

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
    collectives a ``ScatterHook`` or a ``GatherHook``, which takes no state.
    ``make_state``: a callable, or the name of one, that makes a state on each rank for each model:
    called without arguments, or with the process group where it asks for one; by default the state
    is ``None``.  ``local``: the hook's results differ between ranks by design.  ``timeout_s``: how
    long one case may take; a hang takes that long, once.  ``cases``: the keys of some cases only
    (``hooktrace.testing.check.cases``).

    Returns the result where nothing failed, warnings included.  Raises ``AssertionError`` with the
    result as a table where anything did, ``TypeError`` for a hook that cannot be handed to another
    process, ``UsageError`` for one that is not there or a state that cannot be made.  It takes
    about 15 seconds, and leaves no process.
    """
    from .command import as_text
    from .launch import check
    from .spec import HookSpec

    spec = HookSpec.of(hook, make_state, local=local)
    (result,) = check([spec], ranks=ranks, timeout_s=timeout_s, cases=cases)
    if result.failed:
        raise AssertionError(as_text(result))
    return result
