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

import faulthandler
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

import torch
import torch._dynamo  # DDP does when it is made; once here saves a second in each rank

from ...records.errors import UsageError
from ...staging.job import loopback
from .judge import CaseResult, RankEnd, RankResult, judge
from .rank import OUTPUT, RESULT, STACKS, Context, run_rank
from .scenarios import SCENARIOS, Scenario, scenarios_of
from .spec import HookSpec, Job

_GRACE_S = 3.0
_HANGS = 3
"""Cases that may hang before the rest is left out: each costs its whole deadline."""

_STACKS_S = 5.0
"""Ranks have that long to write where they are: on a busy machine one waits for its core first."""

_LOOK_S = 0.1
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
            loaded = [spec.load() for spec in self.job.hooks]
            chosen = [_chosen(self.job.cases, hook) for hook in loaded]
            faulthandler.cancel_dump_traceback_later()
            for index, (hook, cases) in enumerate(zip(loaded, chosen, strict=True)):
                for result in self._results(hook, cases):
                    self.asker.send((index, result))
            self.asker.send(None)
        except UsageError as error:
            self.asker.send(error)

    def _results(self, hook: HookSpec, cases: Sequence[Scenario]) -> Iterator[CaseResult]:
        """Run the cases one after another; raises ``UsageError`` where no state can be made."""
        fine: bool | None = None
        stopped, hangs, one_bucket = "", 0, False
        for case in cases:
            if stopped:
                yield CaseResult(case=case.name, note=stopped, skipped=True)
                continue
            began = time.monotonic()
            ends = self._run(case, hook, fine, one_bucket)
            seconds = time.monotonic() - began
            result = judge(case.name, ends, seconds=seconds, deadline_s=self.job.timeout_s)
            yield result
            hangs += "hang" in result.kinds
            if result.stop:
                stopped = "not run: the hook cannot be registered"
            elif hangs == _HANGS:
                stopped = f"not run: {hangs} cases hung before it"
            fine = fine if result.fine is None else result.fine
            one_bucket = one_bucket or not result.kinds.isdisjoint({"hang", "crash"})

    def _run(
        self, case: Scenario, hook: HookSpec, fine: bool | None, one_bucket: bool
    ) -> list[RankEnd]:
        """Run a case in fresh processes; returns how each of them ended."""
        with tempfile.TemporaryDirectory(dir=self.directory, ignore_cleanup_errors=True) as name:
            ranks = []
            for rank in range(self.job.ranks):
                context = Context(
                    case=case.name, loaded=hook, fine=fine, one_bucket=one_bucket, rank=rank,
                    size=self.job.ranks, timeout_s=self.job.timeout_s,
                )  # fmt: skip
                ranks.append(ForkProcess(target=run_rank, args=(case, context, Path(name))))
            for process in ranks:
                process.start()
            ends = self._wait(ranks, Path(name))
        return [ends[rank] for rank in range(self.job.ranks)]

    def _wait(self, ranks: Sequence[ForkProcess], directory: Path) -> dict[int, RankEnd]:
        """Wait until all ranks have ended; end those that are still there at the deadline."""
        deadline = time.monotonic() + self.job.timeout_s
        ends: dict[int, RankEnd] = {}
        running = {process.sentinel: rank for rank, process in enumerate(ranks)}
        while running:
            ready = wait([self.asker, *running], max(0.0, deadline - time.monotonic()))
            if self.asker in ready:
                _kill(ranks)
                raise EOFError("whoever asked has gone")
            if not ready:
                _stop({rank: ranks[rank] for rank in running.values()}, directory)
                return ends | {rank: _end_of(rank, directory) for rank in running.values()}
            for rank in [running.pop(one) for one in running.keys() & set(ready)]:
                ranks[rank].join()
                ends[rank] = _end_of(rank, directory, ranks[rank].exitcode)
                if not ends[rank].came_to_the_end:
                    # The others cannot finish without it.
                    deadline = min(deadline, ends[rank].ended_at + _GRACE_S)
        return ends


def _chosen(keys: tuple[str, ...], hook: HookSpec) -> list[Scenario]:
    """Return the cases of a hook that were asked for; raises ``UsageError`` where there is none."""
    cases = scenarios_of(hook)
    known = [case.key for case in cases]
    every = {case.key for case in SCENARIOS}
    unknown = next((key for key in keys if key not in every), None)
    chosen = [case for case in cases if case.key in (keys or known)]
    if unknown is not None or not chosen:
        key = keys[0] if unknown is None else unknown
        raise UsageError(f"no case is called {key!r}; the cases are {', '.join(known)}")
    return chosen


def _stop(processes: Mapping[int, ForkProcess], directory: Path) -> None:
    """Ask processes, by rank, for their stacks, and kill them, whether they write any or not."""
    for process in processes.values():
        os.kill(process.pid or 0, signal.SIGUSR1)
    files = [directory / STACKS.format(rank) for rank in processes]
    before, sizes, end = [-1], [0], time.monotonic() + _STACKS_S
    while not (all(sizes) and sizes == before) and time.monotonic() < end:
        time.sleep(_LOOK_S)
        before, sizes = sizes, [len(_read(file)) for file in files]
    _kill(processes.values())


def _kill(processes: Iterable[ForkProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _end_of(rank: int, directory: Path, code: int | None = None) -> RankEnd:
    """Return what a rank has left; raises ``UsageError`` where it says that nothing can be checked.

    ``code``: ``None`` where it did not end by itself.
    """
    path = directory / RESULT.format(rank)
    result: RankResult | UsageError | None = None
    if path.exists():
        result = pickle.loads(path.read_bytes())
    if isinstance(result, UsageError):
        raise result
    return RankEnd(
        rank=rank,
        result=result,
        code=code,
        ended_at=time.monotonic(),
        stacks=_read(directory / STACKS.format(rank)),
        output=_read(directory / OUTPUT.format(rank)),
    )


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


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
