"""Starts the ranks with torch's own elastic launcher and reports how they ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from ...records.files import record_path
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
    except ChildFailedError as error:
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
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=options.ranks,
        run_id="demo",
        role="demo",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=redirects),
    )
    if hasattr(config, "shutdown_timeout"):  # torch 2.6 always gives ranks half a minute
        config.shutdown_timeout = 5
    with _stderr_in(logs / "launcher.log"):
        results = elastic_launch(config, train)(options)
    return [results[rank] for rank in sorted(results)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """Send this process's standard error, and what ranks say before their own logs, to a file.

    The launcher's log repeats every failure at length, and ranks that are interrupted while they
    start print a traceback each.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with path.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def _complain(console: Console, text: str) -> None:
    """Say on standard error how the job ended."""
    if console.is_terminal:
        console.print()  # ends the line of a bar that its rank could not end
    errors = Console(stderr=True, highlight=False, markup=False)
    errors.print(f"hooktrace demo: {text}", soft_wrap=True)


def _failure(options: DemoOptions, error: ChildFailedError) -> str:
    rank, failure = error.get_first_failure()
    lines = [f"rank {rank} failed: {_reason(failure)}"]
    logs = options.out.glob(f"logs/demo_*/attempt_0/{rank}")
    for log in sorted(logs, key=lambda log: log.stat().st_mtime)[-1:]:
        lines.append(f"  its log and error: {log}")
    records = record_path(options.out, rank)
    if records.exists():
        lines.append(f"  its records until then: {records}")
    return "\n".join(lines)


def _reason(failure: ProcessFailure) -> str:
    """Return one line: the exception, or the signal that ended the rank."""
    message = failure.error_file_data.get("message")
    if isinstance(message, dict):
        return str(message.get("message", message))
    if failure.exitcode < 0:
        return f"killed by {failure.signal_name()}"
    return f"it ended with exit code {failure.exitcode} and left no error"
