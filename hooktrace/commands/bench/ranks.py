"""Runs a measurement in processes of its own: one gloo rank each, on loopback."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from ...ranks.job import loopback, shutdown

_GRACE_S = 5.0


def run_ranks(
    ranks: int, measure: Callable[..., Any], *arguments: Any, deadline_s: float
) -> list[Any]:
    """Call ``measure(*arguments)`` on each of ``ranks`` gloo ranks and return what each gave.

    ``measure`` must be importable, and its result must pickle.  Each rank has one thread for
    computing.  No process is left behind: after ``deadline_s`` seconds they are ended and
    ``TimeoutError`` is raised.  What a rank raises is raised here.
    """
    with tempfile.TemporaryDirectory(prefix="hooktrace-bench-") as directory:
        context = spawn(
            _rank_main, (ranks, directory, measure, arguments), nprocs=ranks, join=False
        )
        assert context is not None
        try:
            _join(context, deadline_s)
        finally:
            _end(context.processes)
        return [pickle.loads(_result_path(directory, r).read_bytes()) for r in range(ranks)]


def on_all_ranks(answer: bool) -> bool:
    """Return rank 0's ``answer`` on every rank; all of them must ask."""
    answers = torch.tensor([float(answer)])
    dist.broadcast(answers, 0)
    return bool(answers.item())


def _join(context: Any, deadline_s: float) -> None:
    end = time.monotonic() + deadline_s
    while not context.join(timeout=max(0.0, end - time.monotonic()), grace_period=_GRACE_S):
        if time.monotonic() >= end:
            raise TimeoutError(
                f"the ranks did not end within {deadline_s:.0f} s; the machine is too busy for "
                "this measurement, or a rank hangs: run it again on an idle machine"
            )


def _end(processes: list[Any]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join(_GRACE_S)


def _result_path(directory: str, rank: int) -> Path:
    return Path(directory, f"rank{rank}.pickle")


def _rank_main(
    rank: int, ranks: int, directory: str, measure: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
    os.environ["LOCAL_RANK"] = str(rank)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/store", rank=rank, world_size=ranks
    )
    result = measure(*arguments)
    _result_path(directory, rank).write_bytes(pickle.dumps(result))
    shutdown()
