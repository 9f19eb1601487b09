"""The process that all ranks are forked from: it has imported torch and the hooks, once.

    launch.py --Job--> host --fork--> rank 0 ... rank n-1        a fresh process for every case
                         |  waits for them until the deadline, asks for stacks, ends them
                         +--Message, a file a case--> launch.py

A fork costs some milliseconds where a new process would cost seconds, so no case sees what another
one left behind: broken reducers, stuck threads, half a collective.  The host itself never trains
and has no process group.  When its parent has gone, which standard input says, it ends its ranks
and itself.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch._dynamo  # DDP does when it is made; once here saves a second in each rank

from ...ranks.job import loopback
from ...records.errors import UsageError
from .cases import CASES, Case
from .context import Known
from .judge import RankEnd, RankResult, judge
from .rank import OUTPUT, RESULT, STACKS, run_rank
from .results import CaseResult
from .spec import Job, Loaded, Message

_POLL_S = 0.005
_GRACE_S = 3.0
_HANGS = 3
"""Cases that may hang before the rest is left out: each costs its whole deadline."""

_STACKS_S = 0.5
_IMPORT_S = 120.0


def main(directory: Path) -> int:
    """Do the job in ``directory / "job"``; messages are files there, numbered from 0."""
    faulthandler.dump_traceback_later(_IMPORT_S, exit=True)
    job: Job = pickle.loads((directory / "job").read_bytes())
    sys.path[:] = job.sys_path
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = loopback()
    number = 0

    def tell(message: Message) -> None:
        nonlocal number
        partial = directory / "partial"
        partial.write_bytes(pickle.dumps(message))
        partial.rename(directory / f"message.{number}")
        number += 1

    try:
        cases = _chosen(job.cases)
        loaded = [spec.load() for spec in job.hooks]
        faulthandler.cancel_dump_traceback_later()
        for index, hook in enumerate(loaded):
            for result in _results(hook, cases, job, directory):
                tell((index, result))
    except UsageError as error:
        tell(error)
        return 2
    tell(None)
    return 0


def _results(hook: Loaded, cases: list[Case], job: Job, directory: Path) -> Iterator[CaseResult]:
    """Run the cases one after another; raises ``UsageError`` where the state cannot be made."""
    known = Known()
    stopped, hangs = "", 0
    for case in cases:
        if stopped:
            yield CaseResult(case=case.name, note=stopped, skipped=True)
            continue
        scratch = Path(tempfile.mkdtemp(dir=directory))
        began = time.monotonic()
        ends = _wait(_fork(hook, case, known, job, scratch), scratch, began + job.timeout_s)
        shutil.rmtree(scratch, ignore_errors=True)
        for end in ends:
            if end.result is not None and end.result.usage is not None:
                raise UsageError(end.result.usage)
        seconds = time.monotonic() - began
        result = judge(case.name, ends, seconds=seconds, deadline_s=job.timeout_s)
        yield result
        hangs += result.hung
        if result.stop:
            stopped = "not run: the hook cannot be registered"
        elif hangs == _HANGS:
            stopped = f"not run: {hangs} cases hung before it"
        known = Known(
            error=known.error if result.measured.error is None else result.measured.error,
            one_bucket=known.one_bucket or result.broken,
        )


def _chosen(keys: tuple[str, ...]) -> list[Case]:
    known = [case.key for case in CASES]
    for key in keys:
        if key not in known:
            raise UsageError(f"no case is called {key!r}; the cases are {', '.join(known)}")
    return [case for case in CASES if case.key in (keys or known)]


def _fork(hook: Loaded, case: Case, known: Known, job: Job, directory: Path) -> dict[int, int]:
    """Start the ranks of a case; returns their process ids."""
    pids = {}
    for rank in range(job.ranks):
        pid = os.fork()
        if pid == 0:
            run_rank(
                case, hook, known,
                rank=rank, size=job.ranks, directory=directory, timeout_s=job.timeout_s,
            )  # fmt: skip
        pids[rank] = pid
    return pids


def _wait(pids: dict[int, int], directory: Path, deadline: float) -> list[RankEnd]:
    """Wait for all ranks of a case; end those that are still there at the deadline."""
    codes: dict[int, int] = {}
    times: dict[int, float] = {}
    while len(codes) < len(pids):
        if select.select([sys.stdin], [], [], _POLL_S)[0]:
            _kill([pid for rank, pid in pids.items() if rank not in codes])
            shutil.rmtree(directory.parent, ignore_errors=True)
            os._exit(1)
        for rank, pid in pids.items():
            if rank in codes:
                continue
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                codes[rank] = os.waitstatus_to_exitcode(status)
                times[rank] = time.monotonic()
                if not _came_to_its_end(directory, rank):
                    # The others cannot finish without it.
                    deadline = min(deadline, times[rank] + _GRACE_S)
        if time.monotonic() > deadline:
            waiting = {rank: pid for rank, pid in pids.items() if rank not in codes}
            _stop(list(waiting.values()))
            times |= dict.fromkeys(waiting, time.monotonic())
            break
    return [
        RankEnd(
            rank=rank,
            result=_result(directory, rank),
            code=codes.get(rank),
            ended_at=times[rank],
            stacks=_read(directory / STACKS.format(rank)),
            output=_read(directory / OUTPUT.format(rank)),
        )
        for rank in pids
    ]


def _stop(pids: list[int]) -> None:
    """Ask processes for their stacks and kill them."""
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    time.sleep(_STACKS_S)
    _kill(pids)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def _came_to_its_end(directory: Path, rank: int) -> bool:
    result = _result(directory, rank)
    return result is not None and result.raised_at is None


def _result(directory: Path, rank: int) -> RankResult | None:
    with contextlib.suppress(FileNotFoundError):
        result: RankResult = pickle.loads((directory / RESULT.format(rank)).read_bytes())
        return result
    return None


def _read(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(errors="replace")
    return ""
