"""The process that all ranks are forked from: it has imported torch and the hooks, once.

    launch.py --Job--> host --fork--> rank 0 ... rank n-1        a fresh process for every case
                         |  waits for them until the deadline, asks for stacks, ends them
                         +--Message, a case's result--> launch.py

A fork costs some milliseconds where a new process would cost seconds, so no case sees what another
one left behind: broken reducers, stuck threads, half a collective.  The host itself never trains
and has no process group.  When whoever asked has gone, which the connection says, it ends its ranks
and itself.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch
import torch._dynamo  # DDP does when it is made; once here saves a second in each rank

from ...ranks.job import loopback
from ...records.errors import UsageError
from .cases import CASES, Case
from .context import Known
from .judge import RankEnd, judge
from .rank import OUTPUT, RESULT, STACKS, run_rank
from .results import CaseResult, RankResult
from .spec import Job, Loaded

_GRACE_S = 3.0
_HANGS = 3
"""Cases that may hang before the rest is left out: each costs its whole deadline."""

_STACKS_S = 0.5
_IMPORT_S = 120.0


@dataclass(frozen=True, slots=True)
class Host:
    """A job, who asked for it, and the directory of its files."""

    job: Job
    asker: Connection
    directory: Path

    def run(self) -> None:
        """Send each case's result with its hook's number, then ``None``; or why there is none."""
        try:
            cases = _chosen(self.job.cases)
            loaded = [spec.load() for spec in self.job.hooks]
            faulthandler.cancel_dump_traceback_later()
            for index, hook in enumerate(loaded):
                for result in self._results(hook, cases):
                    self.asker.send((index, result))
            self.asker.send(None)
        except UsageError as error:
            self.asker.send(error)

    def _results(self, hook: Loaded, cases: Sequence[Case]) -> Iterator[CaseResult]:
        """Run the cases one after another; raises ``UsageError`` where no state can be made."""
        known = Known()
        stopped, hangs = "", 0
        for case in cases:
            if stopped:
                yield CaseResult(case=case.name, note=stopped, skipped=True)
                continue
            began = time.monotonic()
            ends = self._run(case, hook, known)
            seconds = time.monotonic() - began
            result = judge(case.name, ends, seconds=seconds, deadline_s=self.job.timeout_s)
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

    def _run(self, case: Case, hook: Loaded, known: Known) -> list[RankEnd]:
        """Run a case in fresh processes; returns how each of them ended."""
        with tempfile.TemporaryDirectory(dir=self.directory, ignore_cleanup_errors=True) as name:
            directory = Path(name)
            ranks = [
                ForkProcess(
                    target=run_rank,
                    args=(case, hook, known),
                    kwargs={"job": self.job, "rank": rank, "directory": directory},
                )
                for rank in range(self.job.ranks)
            ]
            for process in ranks:
                process.start()
            ended_at = self._wait(ranks, directory)
            return [
                RankEnd(
                    rank=rank,
                    result=_result(directory, rank),
                    code=process.exitcode if rank in ended_at else None,
                    ended_at=ended_at.get(rank, 0.0),
                    stacks=_read(directory / STACKS.format(rank)),
                    output=_read(directory / OUTPUT.format(rank)),
                )
                for rank, process in enumerate(ranks)
            ]

    def _wait(self, ranks: Sequence[ForkProcess], directory: Path) -> dict[int, float]:
        """Return when each rank ended by itself; the others are ended at the deadline."""
        deadline = time.monotonic() + self.job.timeout_s
        ended_at: dict[int, float] = {}
        running = {process.sentinel: rank for rank, process in enumerate(ranks)}
        while running:
            ready = wait([self.asker, *running], max(0.0, deadline - time.monotonic()))
            if self.asker in ready:
                _kill(ranks)
                raise EOFError("whoever asked has gone")
            if not ready:
                _stop([ranks[rank] for rank in running.values()])
                break
            now = time.monotonic()
            for rank in [running.pop(one) for one in running.keys() & set(ready)]:
                ranks[rank].join()
                ended_at[rank] = now
                if not _came_to_its_end(directory, rank):
                    # The others cannot finish without it.
                    deadline = min(deadline, now + _GRACE_S)
        return ended_at


def _chosen(keys: tuple[str, ...]) -> list[Case]:
    known = [case.key for case in CASES]
    for key in keys:
        if key not in known:
            raise UsageError(f"no case is called {key!r}; the cases are {', '.join(known)}")
    return [case for case in CASES if case.key in (keys or known)]


def _stop(processes: Sequence[ForkProcess]) -> None:
    """Ask processes for their stacks and kill them."""
    for process in processes:
        os.kill(process.pid or 0, signal.SIGUSR1)
    time.sleep(_STACKS_S)
    _kill(processes)


def _kill(processes: Iterable[ForkProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _came_to_its_end(directory: Path, rank: int) -> bool:
    result = _result(directory, rank)
    return result is not None and result.raised_at is None


def _result(directory: Path, rank: int) -> RankResult | None:
    """Return what a rank has to say; raises ``UsageError`` where nothing can be checked."""
    with contextlib.suppress(FileNotFoundError):
        result: RankResult | UsageError = pickle.loads(
            (directory / RESULT.format(rank)).read_bytes()
        )
        if isinstance(result, UsageError):
            raise result
        return result
    return None


def _read(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(errors="replace")
    return ""


def main(directory: Path, asker: Connection) -> None:
    """Do the job in ``directory / "job"`` for whoever is at the connection's other end."""
    faulthandler.dump_traceback_later(_IMPORT_S, exit=True)
    # The connection is to end with the host, not with the last of its ranks.
    os.register_at_fork(after_in_child=asker.close)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = loopback()
    try:
        Host(pickle.loads((directory / "job").read_bytes()), asker, directory).run()
    except (EOFError, BrokenPipeError):
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Connection(int(sys.argv[2])))
