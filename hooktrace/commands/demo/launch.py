"""Starts the ranks, and reports how they ended."""

from __future__ import annotations

import math
import signal

from rich.console import Console
from torch.distributed.elastic.multiprocessing import SignalException, Std

from ...records.files import record_path
from ...testing.ranks import RankError, run_ranks
from .closing import hold, print_closing
from .options import DemoOptions
from .train import RankResult, train


def run(options: DemoOptions) -> int:
    """Run the demo and print what it saw; returns the exit code, and leaves no process.

    0: all ranks ended well.  1: a rank failed; standard error says which, why and where its log
    is.  128 + n: signal n ended it.  Raises ``UsageError`` for options that cannot work.
    """
    options.check()
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"hooktrace demo: {_count(options.ranks, 'rank')}, "
        f"{options.hook_name}, {_count(options.steps, 'step')}, "
        f"files in {options.out}"
    )
    try:
        results = _launch(options)
    except RankError as error:
        _complain(console, _failure(options, error))
        return 1
    except SignalException as error:
        _complain(
            console,
            f"ended by {signal.Signals(error.sigval).name}; what was recorded until then is in "
            f"{options.out}",
        )
        return 128 + error.sigval
    finally:  # what ranks that were killed could not do
        console.show_cursor(True)
        for path in (options.out / "prometheus").glob("hooktrace-rank*.json"):
            path.unlink(missing_ok=True)
    print_closing(console, options, results)
    if options.hold:
        hold(console, options)
    return 0


def _launch(options: DemoOptions) -> list[RankResult]:
    logs = options.out / "logs"
    logs.mkdir(exist_ok=True)
    # Rank 0 has the screen; all else that ranks print goes to their logs.
    redirects = {rank: Std.ALL if rank else Std.ERR for rank in range(options.ranks)}
    return run_ranks(
        options.ranks, train, options, deadline_s=math.inf, logs=logs, redirects=redirects
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _complain(console: Console, text: str) -> None:
    """Say on standard error how the job ended."""
    if console.is_terminal:
        console.print()  # ends the line of a bar that its rank could not end
    errors = Console(stderr=True, highlight=False, markup=False)
    errors.print(f"hooktrace demo: {text}", soft_wrap=True)


def _failure(options: DemoOptions, error: RankError) -> str:
    lines = [
        f"rank {error.rank} failed: {error.reason}",
        f"  its log and error: {error.logs}",
    ]
    records = record_path(options.out, error.rank)
    if records.exists():
        lines.append(f"  its records until then: {records}")
    return "\n".join(lines)
