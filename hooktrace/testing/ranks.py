"""Runs a function on gloo ranks of this machine: those of ``hooktrace check``, demo and bench.

run_ranks(n, measure, ...) --spawn or fork--> measure(...) on n ranks, on loopback --> n results
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from ..staging.job import loopback, shutdown

_LOOK_S = 0.05


class RankError(RuntimeError):
    """A rank failed.  ``rank``: which; ``reason``: one line; ``logs``: the directory of its logs.

    The logs are gone where ``run_ranks`` was given no directory for them.
    """

    def __init__(self, rank: int, reason: str, logs: Path) -> None:
        super().__init__(f"rank {rank}: {reason}")
        self.rank = rank
        self.reason = reason
        self.logs = logs


def run_ranks(
    ranks: int,
    measure: Callable[..., Any],
    *arguments: Any,
    deadline_s: float = 900.0,
    logs: Path | None = None,
    redirects: Std | dict[int, Std] = Std.NONE,
    start_method: str = "spawn",
) -> list[Any]:
    """Call ``measure(*arguments)`` on each of ``ranks`` gloo ranks and return what each gave.

    ``measure`` must be importable, and its result must pickle.  Each rank has one thread for
    computing, and ends without a traceback at Ctrl-C.  ``logs``: a directory for what the ranks
    print, as far as ``redirects`` says so for a rank, and for what this process prints on standard
    error meanwhile.  ``start_method``: "fork" takes milliseconds, and the ranks then have what this
    process has imported; it must not have trained.

    No process is left behind: after ``deadline_s`` seconds they are ended and ``TimeoutError`` is
    raised.  What a rank raises is a ``RankError`` here, and a signal torch's ``SignalException``.
    """
    # A rank that is being killed may write once more, and that error would hide the Ctrl-C.
    with (
        tempfile.TemporaryDirectory(
            prefix="hooktrace-ranks-", ignore_cleanup_errors=True
        ) as directory,
        _stderr_in(logs),
    ):
        context = start_processes(
            "ranks",
            _rank_main,
            args=dict.fromkeys(range(ranks), (f"file://{directory}/store", measure, arguments)),
            envs={r: _environment(r, ranks) for r in range(ranks)},
            logs_specs=DefaultLogsSpecs(log_dir=str(logs or directory), redirects=redirects),
            start_method=start_method,
        )
        try:
            result = context.wait(deadline_s, period=_LOOK_S)
        finally:
            context.close(signal.SIGKILL)
    if result is None:
        raise TimeoutError(
            f"the ranks did not end within {deadline_s:.0f} s; the machine is too busy for "
            "this measurement, or a rank hangs: run it again on an idle machine"
        )
    for rank, failure in result.failures.items():
        raise RankError(rank, _reason(failure), Path(context.error_files[rank]).parent)
    return [result.return_values[rank] for rank in range(ranks)]


def _environment(rank: int, ranks: int) -> dict[str, str]:
    """Return what torchrun sets for a rank of one machine, and gloo's interface."""
    own, size = str(rank), str(ranks)
    return {
        "RANK": own,
        "LOCAL_RANK": own,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "GLOO_SOCKET_IFNAME": loopback(),
    }


def _rank_main(store: str, measure: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    # Python's handler would print a traceback for each rank.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    result = measure(*arguments)
    shutdown()
    return result


@contextmanager
def _stderr_in(logs: Path | None) -> Iterator[None]:
    """Send this process's standard error, and what ranks say before their own logs, to a file.

    The launcher's log repeats every failure at length, and ranks that are interrupted while they
    start print a traceback each.  Without a directory standard error stays what it is.
    """
    if logs is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with (logs / "launcher.log").open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def _reason(failure: ProcessFailure) -> str:
    """Return one line: the exception, or the signal that ended the rank."""
    message = failure.error_file_data.get("message")
    if isinstance(message, dict):
        return str(message.get("message", message))
    if failure.exitcode < 0:
        return f"killed by {failure.signal_name()}"
    return f"it ended with exit code {failure.exitcode} and left no error"
