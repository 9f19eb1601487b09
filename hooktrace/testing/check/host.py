"""The process that all ranks are forked from: it has imported torch and the hooks, once.

A fork costs some milliseconds where a new process would cost seconds, so every case has fresh
processes, and sees nothing of a broken reducer or half a collective of another one.  The host
itself never trains and has no process group.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch
import torch._dynamo  # DDP does when it is made; once here saves a second in each rank
from torch.distributed.elastic.multiprocessing import Std

from ...records.errors import UsageError
from ..ranks import RankError, run_ranks
from .rank import LINGER_S, RESULT, Context, run_rank
from .result import CaseResult, Measured, Problem
from .scenarios import Scenario, chosen
from .spec import HookSpec, Job
from .stacks import split, where

_HANGS = 3
"""Cases that may hang before the rest is left out: each costs its whole deadline."""

_STACKS_S = 2.0
"""Ranks have that long to write their stacks after the deadline."""

_SOURCE = re.compile(r"\[enforce fail at \S*?([^/\s]+)\] ?")
"""How gloo's errors begin: the path of a file on the machine that torch was built on."""

_WORDS = 240


def serve(asker: Connection, directory: Path) -> None:
    """Send each case's result with its hook's number, then ``None``; or why there is none."""
    job: Job = asker.recv()
    threading.Thread(target=_end_with, args=(asker, directory), daemon=True).start()
    try:
        hooks = [spec.load() for spec in job.hooks]
        asked = [chosen(job.cases, hook) for hook in hooks]
        gc.freeze()  # so that a rank's collection at its end looks at its own objects alone
        for place, (hook, cases) in enumerate(zip(hooks, asked, strict=True)):
            for result in _results(hook, cases, job, directory):
                asker.send((place, result))
        asker.send(None)
    except UsageError as error:
        asker.send(error)


def _end_with(asker: Connection, directory: Path) -> None:
    """End this process, its ranks and their files when the asking process has gone."""
    wait([asker])
    shutil.rmtree(directory, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _results(
    hook: HookSpec, cases: Sequence[Scenario], job: Job, directory: Path
) -> Iterator[CaseResult]:
    """Run the cases one after another; raises ``UsageError`` if no state can be made."""
    hangs = 0
    context = Context(hook=hook, size=job.ranks, timeout_s=job.timeout_s)
    for case in cases:
        began = time.monotonic()
        result = _run(case, context, directory)
        result.seconds = time.monotonic() - began
        hangs += "hang" in result.kinds
        is_last = hangs == _HANGS or "registration" in result.kinds
        if is_last:
            result.note = "the cases after this one were not run"
        yield result
        if is_last:
            return
        context.fine = context.fine if result.fine is None else result.fine
        context.one_bucket |= not result.kinds.isdisjoint({"hang", "crash"})


def _run(case: Scenario, context: Context, directory: Path) -> CaseResult:
    """Run a case in fresh processes, and return what the ranks found and how they ended."""
    ended: Exception | None = None
    context.result = CaseResult(case=case.key)
    with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as name:
        logs = Path(name)
        try:
            run_ranks(
                context.size, run_rank, case, context, logs, logs=logs, redirects=Std.ALL,
                deadline_s=context.timeout_s + _STACKS_S, start_method="fork",
            )  # fmt: skip
        except (RankError, TimeoutError) as error:
            ended = error
        files = {rank: logs / RESULT.format(rank) for rank in range(context.size)}
        results = {r: pickle.loads(f.read_bytes()) for r, f in files.items() if f.exists()}
        said = {int(f.parent.name): f.read_text(errors="replace") for f in logs.rglob("stderr.log")}
    for result in results.values():
        if isinstance(result, UsageError):
            raise result
    return judge(context, results, ended, said)


def judge(
    context: Context,
    results: Mapping[int, CaseResult],
    ended: Exception | None,
    said: Mapping[int, str],
) -> CaseResult:
    """Return what a case found, by its first cause.

    A rank that ended without a result crashed, and the others fail because of that; so do those
    that raise long after the first one that did.  ``ended``: the launcher's error.  ``said``: what
    ranks printed, with stacks if they crashed or came to the deadline.
    """
    found, case = list(results.values()), context.result.case
    last = min((one.raised_at for one in found), default=0.0) + LINGER_S / 2
    causes = [one for one in found if not last < one.raised_at < math.inf]
    problems = [problem for one in causes for problem in one.problems]
    stacks: dict[int, str] = {}
    if isinstance(ended, RankError) and ended.rank not in results:
        words, stacks[ended.rank] = split(said.get(ended.rank, ""))
        what = "; ".join(filter(None, [f"{ended}", _last(words), where(stacks[ended.rank])]))
        problems = [Problem(case=case, kind="crash", message=what, rank=ended.rank)]
    elif isinstance(ended, TimeoutError):
        stacks = {rank: split(said.get(rank, ""))[1] for rank in range(context.size)}
        places = [f"rank {rank}: {where(stack) or 'no stacks'}" for rank, stack in stacks.items()]
        what = "; ".join([f"not done after {context.timeout_s:g} s", *places])
        problems.append(Problem(case=case, kind="hang", message=what))
    fine = [one.fine for one in found if one.fine is not None]
    return CaseResult(
        case=case,
        problems=_merged(problems, context.size),
        note=next((one.note for one in found), ""),
        stacks="\n".join(f"rank {rank}:\n{stack}" for rank, stack in stacks.items() if stack),
        # All ranks must take the same for known, and a local hook's results differ.
        measured=max((o.measured for o in found), key=lambda m: m.error or 0.0, default=Measured()),
        fine=all(fine) if fine else None,
    )


def _merged(problems: Sequence[Problem], ranks: int) -> list[Problem]:
    """Return one problem a kind: the lowest rank's; ``rank`` is ``None`` if all ranks saw it."""
    merged = []
    for kind in dict.fromkeys(problem.kind for problem in problems):
        same = [problem for problem in problems if problem.kind == kind]
        is_alone = len({problem.rank for problem in same}) < ranks
        merged.append(replace(same[0], rank=same[0].rank if is_alone else None))
    return merged


def _last(words: str) -> str:
    """Return the last line of what a rank printed, in a sentence."""
    said = [line.strip() for line in words.splitlines() if line.strip()]
    last = _SOURCE.sub(r"\1 ", said[-1].removeprefix("what():").strip()) if said else ""
    return last and f"its last words: {last[:_WORDS]}"


if __name__ == "__main__":
    connection = Connection(int(sys.argv[2]))
    # The connection is to end with the host, not with the last of its ranks.
    os.register_at_fork(after_in_child=connection.close)
    torch.set_num_threads(1)
    serve(connection, Path(sys.argv[1]))
